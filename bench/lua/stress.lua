-- A load in the manner of dbSTRESS: objects stand in sections of zones, each with a history of states. A reading event
-- joins an object with its place or lists its history; a writing one updates, deletes and inserts history rows. No
-- think time. `--mix=rw` does one reading event for each writing one; `--mix=sel1` only the point join, on tables without
-- the history, each with an INT primary key.
sysbench.cmdline.options = {
   objects = {"number of objects", 10000},
   history = {"history rows of an object", 10},
   partitions = {"hash partitions of the history table, 0: none", 0},
   mix = {"rw, sel1 or sel2", "rw"},
   mysql_storage_engine = {"engine of the tables", "innodb"},
}

local ZONES, SECTIONS, STATS = 10, 1000, 1000

local function fill(con, into, count, row)
   con:bulk_insert_init("INSERT INTO " .. into .. " VALUES")
   for i = 1, count do con:bulk_insert_next(row(i)) end
   con:bulk_insert_done()
end

local function create(con)
   local engine = " ENGINE=" .. sysbench.opt.mysql_storage_engine
   local split = ""
   if sysbench.opt.partitions > 0 then split = " PARTITION BY HASH (object) PARTITIONS " .. sysbench.opt.partitions end
   for _, name in ipairs({"zone", "section", "object", "stat", "history"}) do
      con:query("DROP TABLE IF EXISTS " .. name)
   end
   con:query("CREATE TABLE zone (id INT NOT NULL PRIMARY KEY, code CHAR(4) NOT NULL, name CHAR(20) NOT NULL)" .. engine)
   con:query([[CREATE TABLE section (id INT NOT NULL PRIMARY KEY, zone INT NOT NULL, name CHAR(20) NOT NULL,
      KEY by_zone (zone))]] .. engine)
   con:query([[CREATE TABLE object (id INT NOT NULL PRIMARY KEY, section INT NOT NULL, name CHAR(30) NOT NULL,
      note CHAR(100) NOT NULL, KEY by_section (section))]] .. engine)
   if sysbench.opt.mix == "sel1" then return end
   con:query("CREATE TABLE stat (id INT NOT NULL PRIMARY KEY, name CHAR(20) NOT NULL)" .. engine)
   con:query([[CREATE TABLE history (object INT NOT NULL, step INT NOT NULL, stat INT NOT NULL, begun CHAR(12) NOT NULL,
      ended CHAR(12) NOT NULL, note CHAR(100) NOT NULL, PRIMARY KEY (object, step))]] .. engine .. split)
end

local function history_row(object, step)
   return string.format("(%d, %d, %d, '202601010000', '202612312359', '%s')", object, step,
      sysbench.rand.uniform(1, STATS), sysbench.rand.string("@@@@@@@@@@@@@@@@@@@@"))
end

function prepare()
   local con = sysbench.sql.driver():connect()
   create(con)
   fill(con, "zone", ZONES, function(i) return string.format("(%d, 'Z%03d', 'zone %d')", i, i, i) end)
   fill(con, "section", SECTIONS, function(i) return string.format("(%d, %d, 'section %d')", i, i % ZONES + 1, i) end)
   fill(con, "object", sysbench.opt.objects, function(i)
      return string.format("(%d, %d, 'object %d', '%s')", i, i % SECTIONS + 1, i, sysbench.rand.string("@@@@@@@@@@@@@@@"))
   end)
   if sysbench.opt.mix == "sel1" then return end
   fill(con, "stat", STATS, function(i) return string.format("(%d, 'stat %d')", i, i) end)
   local each = sysbench.opt.history
   fill(con, "history", sysbench.opt.objects * each, function(i)
      return history_row(math.floor((i - 1) / each) + 1, (i - 1) % each + 1)
   end)
end

function thread_init()
   writes = false
   con = sysbench.sql.driver():connect()
   local int = sysbench.sql.type.INT
   local function statement(text, params)
      local item = {run = con:prepare(text), bind = {}}
      for i = 1, params do item.bind[i] = item.run:bind_create(int) end
      item.run:bind_param(unpack(item.bind))
      return item
   end
   sel1 = statement([[SELECT o.name, o.note, s.name, z.code, z.name FROM object o JOIN section s ON s.id = o.section
      JOIN zone z ON z.id = s.zone WHERE o.id = ?]], 1)
   if sysbench.opt.mix == "sel1" then return end
   sel2 = statement([[SELECT h.step, h.begun, h.ended, h.note, s.name FROM history h JOIN stat s ON s.id = h.stat
      WHERE h.object = ? ORDER BY h.step]], 1)
   upd = statement("UPDATE history SET note = CONCAT('changed ', RAND()) WHERE object = ? AND step = ?", 2)
   del = statement("DELETE FROM history WHERE object = ? AND step = ?", 2)
end

local function execute(item, a, b)
   item.bind[1]:set(a)
   if b then item.bind[2]:set(b) end
   return item.run:execute()
end

local function write_event(object)
   local step = sysbench.rand.uniform(1, sysbench.opt.history)
   con:query("BEGIN")
   execute(upd, object, sysbench.rand.uniform(1, sysbench.opt.history))
   execute(del, object, step)
   -- IGNORE: another session may have put the same row back meanwhile.
   con:query("INSERT IGNORE INTO history VALUES " .. history_row(object, step))
   con:query("COMMIT")
end

local function read(item, object)
   local rows = execute(item, object)
   if rows then rows:free() end
end

function event()
   local object = sysbench.rand.uniform(1, sysbench.opt.objects)
   if sysbench.opt.mix == "sel1" then
      read(sel1, object)
   elseif sysbench.opt.mix == "sel2" then
      read(sel2, object)
   elseif writes then
      write_event(object)
      writes = false
   else
      read(sysbench.rand.uniform(1, 2) == 1 and sel1 or sel2, object)
      writes = true
   end
end

function thread_done() con:disconnect() end
