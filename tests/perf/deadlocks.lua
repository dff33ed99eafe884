-- Deadlocks on purpose: each transaction locks or changes two to four of a few rows, in any order. A victim starts over, and
-- so does who has waited too long.
sysbench.cmdline.options = {
   rows = {"rows of the table", 100},
   mysql_storage_engine = {"engine of the table", "innodb"},
}

function prepare()
   local con = sysbench.sql.driver():connect()
   con:query("DROP TABLE IF EXISTS hot")
   con:query(string.format("CREATE TABLE hot (id INT NOT NULL PRIMARY KEY, n BIGINT NOT NULL) ENGINE=%s",
      sysbench.opt.mysql_storage_engine))
   con:bulk_insert_init("INSERT INTO hot VALUES")
   for i = 1, sysbench.opt.rows do
      con:bulk_insert_next(string.format("(%d, 0)", i))
   end
   con:bulk_insert_done()
end

function thread_init()
   con = sysbench.sql.driver():connect()
   local int = sysbench.sql.type.INT
   add = con:prepare("UPDATE hot SET n = n + 1 WHERE id = ?")
   look = con:prepare("SELECT n FROM hot WHERE id = ? LOCK IN SHARE MODE")
   add_key, look_key = add:bind_create(int), look:bind_create(int)
   add:bind_param(add_key)
   look:bind_param(look_key)
end

-- Reported as an error, and it goes on.
function sysbench.hooks.sql_error_ignorable(err)
   return err.sql_errno == 1205
end

function event()
   con:query("BEGIN")
   for _ = 1, sysbench.rand.uniform(2, 4) do
      local id = sysbench.rand.uniform(1, sysbench.opt.rows)
      if sysbench.rand.uniform(1, 4) == 1 then
         look_key:set(id)
         look:execute()
      else
         add_key:set(id)
         add:execute()
      end
   end
   con:query("COMMIT")
end

function thread_done()
   add:close()
   look:close()
   con:disconnect()
end
