/*
 * The core's threads, waits, files and memory as instruments of the Performance Schema:
 *
 *   thread/ferrite/NAME              threads of the core
 *   wait/synch/mutex/ferrite/REASON  waits as information_schema.FERRITE_WAITS counts them
 *   wait/io/file/ferrite/CLASS       reads, writes and syncs of files, one instance for each class
 *   memory/ferrite/PART              memory as information_schema.FERRITE_MEMORY shows it, every 5
 * s
 *
 * Invariants: where the Performance Schema is off nothing is registered and the core observes
 * nothing; classes, once registered, stay. Locking: `names_mutex` for classes that are made as they
 * are met; it is not taken for each wait or call.
 */
#include "ferrite_psi.h"

#include "server_compat.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ferrite.h"

namespace {

const char *const category = "ferrite";
constexpr const char *here = "ferrite";

static_assert(sizeof(PSI_mutex_locker_state) <= FE_ROOM_BYTES, "a wait needs more room");
static_assert(sizeof(PSI_file_locker_state) <= FE_ROOM_BYTES, "a call needs more room");
static_assert(alignof(PSI_mutex_locker_state) <= 16 && alignof(PSI_file_locker_state) <= 16,
              "another alignment");

std::mutex names_mutex;

/* Names of instruments are kept for ever; the server wants no spaces in them. */
const char *instrument(const std::string &name) {
  static std::deque<std::string> kept;
  kept.push_back(name);
  std::replace(kept.back().begin(), kept.back().end(), ' ', '_');
  return kept.back().c_str();
}

/* ---- waits -------------------------------------------------------------------- */

/* By the number of the reason; filled before the core is open. */
std::vector<PSI_mutex *> waits;

void register_waits() {
  const char *name;
  for (uint32_t n = 0; (name = fe_wait_reason(n)); n++) {
    PSI_mutex_key key = 0;
    PSI_mutex_info info = {&key, instrument(name), PSI_FLAG_GLOBAL};
    PSI_server->register_mutex(category, &info, 1);
    waits.push_back(key ? PSI_server->init_mutex(key, nullptr) : nullptr);
  }
}

void *wait_begins(uint32_t reason, void *room) {
  PSI_mutex *mutex = reason < waits.size() ? waits[reason] : nullptr;
  if (!mutex) return nullptr;
  return PSI_server->start_mutex_wait(static_cast<PSI_mutex_locker_state *>(room), mutex,
                                      PSI_MUTEX_LOCK, here, 0);
}

void wait_ends(void *wait) {
  /* Several wait for one reason at a time: none of them has the mutex that stands for it. */
  PSI_mutex *mutex = static_cast<PSI_mutex_locker_state *>(wait)->m_mutex;
  PSI_server->end_mutex_wait(static_cast<PSI_mutex_locker *>(wait), 0);
  PSI_server->unlock_mutex(mutex);
}

/* ---- threads ------------------------------------------------------------------ */

PSI_thread_key thread_key(const char *name) {
  static std::map<std::string, PSI_thread_key> keys;
  std::lock_guard<std::mutex> held(names_mutex);
  auto known = keys.emplace(name, 0);
  PSI_thread_key &key = known.first->second;
  if (known.second) {
    /* ferrite-purge is thread/ferrite/purge, fe-log-flush thread/ferrite/log-flush. */
    std::string short_name = name;
    for (const char *prefix : {"ferrite-", "fe-"})
      if (short_name.rfind(prefix, 0) == 0) short_name.erase(0, strlen(prefix));
    PSI_thread_info info = {&key, instrument(short_name), 0};
    PSI_server->register_thread(category, &info, 1);
  }
  return key;
}

void thread_begins(const char *name) {
  PSI_thread *thread = PSI_server->new_thread(thread_key(name), nullptr, 0);
  if (!thread) return;
  PSI_server->set_thread_os_id(thread);
  PSI_server->set_thread(thread);
}

void thread_ends() { PSI_server->delete_current_thread(); }

/* ---- files -------------------------------------------------------------------- */

struct FileClass {
  const char *name;
  PSI_file_key key;
  std::atomic<PSI_file *> instance;
};

/* What a file's name begins with, up to a dot; the last is for all others. */
FileClass file_classes[] = {{"redo", 0, {nullptr}},       {"store", 0, {nullptr}},
                            {"map", 0, {nullptr}},        {"checkpoint", 0, {nullptr}},
                            {"superblock", 0, {nullptr}}, {"undo", 0, {nullptr}},
                            {"history", 0, {nullptr}},    {"other", 0, {nullptr}}};

void register_files() {
  for (FileClass &c : file_classes) {
    PSI_file_info info = {&c.key, c.name, 0};
    PSI_server->register_file(category, &info, 1);
  }
}

FileClass &class_of(const std::string &name) {
  const std::string beginning = name.substr(0, name.find('.'));
  FileClass *others = std::end(file_classes) - 1;
  return *std::find_if(std::begin(file_classes), others,
                       [&](const FileClass &c) { return beginning == c.name; });
}

/* One instance for each class: files of the log come and go under ever new names. */
PSI_file *instance_of(FileClass &c, const std::string &directory) {
  std::lock_guard<std::mutex> held(names_mutex);
  PSI_file *instance = c.instance.load();
  if (instance || !c.key) return instance;
  const std::string path = directory + c.name;
  PSI_file_locker_state state;
  PSI_file_locker *locker =
      PSI_server->get_thread_file_name_locker(&state, c.key, PSI_FILE_OPEN, path.c_str(), &c);
  if (!locker) return nullptr;
  PSI_server->start_file_open_wait(locker, here, 0);
  instance = PSI_server->end_file_open_wait(locker, &c);
  c.instance.store(instance);
  return instance;
}

void *file_opened(const char *path) {
  const std::string whole = path;
  const size_t slash = whole.rfind('/');
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  FileClass &c = class_of(whole.substr(begin));
  PSI_file *instance = c.instance.load(std::memory_order_relaxed);
  return instance ? instance : instance_of(c, whole.substr(0, begin));
}

void *file_begins(void *file_class, fe_file_call call, size_t bytes, void *room) {
  const PSI_file_operation operation = call == FE_FILE_READ    ? PSI_FILE_READ
                                       : call == FE_FILE_WRITE ? PSI_FILE_WRITE
                                                               : PSI_FILE_SYNC;
  PSI_file_locker *locker = PSI_server->get_thread_file_stream_locker(
      static_cast<PSI_file_locker_state *>(room), static_cast<PSI_file *>(file_class), operation);
  if (locker) PSI_server->start_file_wait(locker, bytes, here, 0);
  return locker;
}

void file_ends(void *followed, size_t bytes) {
  PSI_server->end_file_wait(static_cast<PSI_file_locker *>(followed), bytes);
}

/* ---- memory ------------------------------------------------------------------- */

struct Part {
  PSI_memory_key key = 0;
  uint64_t bytes = 0; /* that the server was told of */
};

/* Called by one thread at a time. What an instrument that is off was not told, it is told later. */
void memory(const char *name, uint64_t bytes) {
  static std::map<std::string, Part> parts;
  std::lock_guard<std::mutex> held(names_mutex);
  auto known = parts.emplace(name, Part());
  Part &part = known.first->second;
  if (known.second) {
    PSI_memory_info info = {&part.key, instrument(name), PSI_FLAG_GLOBAL};
    PSI_server->register_memory(category, &info, 1);
  }
  if (!part.key || bytes == part.bytes) return;
  /* One piece for all of the part, so that the server's counts of pieces are never below zero. */
  PSI_thread *owner = nullptr;
  if (part.bytes) PSI_server->memory_free(part.key, part.bytes, owner);
  part.bytes = bytes && PSI_server->memory_alloc(part.key, bytes, &owner) ? bytes : 0;
}

bool is_on() {
  /* Where it is off, registering gives no keys. */
  PSI_thread_key key = 0;
  PSI_thread_info info = {&key, "main", PSI_FLAG_GLOBAL};
  PSI_server->register_thread(category, &info, 1);
  return key != 0;
}

}  // namespace

void ferrite_observe_core() {
  static const fe_observer observer = {thread_begins, thread_ends, wait_begins, wait_ends,
                                       file_opened,   file_begins, file_ends,   memory};
  if (!PSI_server || !is_on()) return;
  register_waits();
  register_files();
  fe_observe(&observer);
}
