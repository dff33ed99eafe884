-- Children of a foreign key: insert = each of any parent; hot = all of one parent, which the last `updaters` threads change all the
-- time; count = insert a child of one parent and count it there, in one transaction.
sysbench.cmdline.options = {
   parents = {"rows of the parent", 10000},
   foreign = {"with the foreign key, or only its index", true},
   load = {"insert, hot or count", "insert"},
   updaters = {"threads that change the parent", 8},
   mysql_storage_engine = {"engine of the tables", "innodb"},
}

function prepare()
   local con = sysbench.sql.driver():connect()
   local engine = sysbench.opt.mysql_storage_engine
   con:query("DROP TABLE IF EXISTS child")
   con:query("DROP TABLE IF EXISTS parent")
   con:query(string.format("CREATE TABLE parent (id INT NOT NULL PRIMARY KEY, n BIGINT NOT NULL, t VARCHAR(40)) ENGINE=%s", engine))
   con:query(string.format("INSERT INTO parent SELECT seq, 0, MD5(seq) FROM seq_1_to_%d", sysbench.opt.parents))
   local key = sysbench.opt.foreign and ", FOREIGN KEY (parent) REFERENCES parent (id)" or ""
   con:query(string.format("CREATE TABLE child (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, parent INT NOT NULL, t CHAR(40), KEY parent (parent)%s) ENGINE=%s",
      key, engine))
end

function thread_init()
   con = sysbench.sql.driver():connect()
   local int = sysbench.sql.type.INT
   insert = con:prepare("INSERT INTO child (parent, t) VALUES (?, 'some text of forty bytes, more or less')")
   update = con:prepare("UPDATE parent SET n = n + 1 WHERE id = ?")
   insert_key, update_key = insert:bind_create(int), update:bind_create(int)
   insert:bind_param(insert_key)
   update:bind_param(update_key)
   changes_parent = sysbench.opt.load == "hot" and sysbench.tid >= sysbench.opt.threads - sysbench.opt.updaters
end

function event()
   if sysbench.opt.load == "insert" then
      insert_key:set(sysbench.rand.uniform(1, sysbench.opt.parents))
      insert:execute()
      return
   end
   insert_key:set(7)
   update_key:set(7)
   if sysbench.opt.load == "count" then
      con:query("BEGIN")
      insert:execute()
      update:execute()
      con:query("COMMIT")
   elseif changes_parent then
      update:execute()
   else
      insert:execute()
   end
end

function thread_done()
   insert:close()
   update:close()
   con:disconnect()
end
