/* See ceiling_log.h. An I/O error ends the process: a figure measured after one would be a lie. */
#include "ceiling_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

[[noreturn]] void fail(const char *what) {
  perror(what);
  abort();
}

}  // namespace

bool CeilingLog::open(const char *path) {
  m_file = ::open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
  if (m_file < 0) m_file = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (m_file < 0) return false;
  void *memory = nullptr;
  if (posix_memalign(&memory, block, ring_size)) return false;
  m_ring = static_cast<unsigned char *>(memory);
  memset(m_ring, 0, ring_size);
  /* Written once in full, so that no commit pays for extending the file. */
  for (uint64_t at = 0; at < ring_size; at += 1 << 20)
    if (pwrite(m_file, m_ring, 1 << 20, static_cast<off_t>(at)) != 1 << 20) return false;
  if (fdatasync(m_file)) return false;
  m_flusher = std::thread(&CeilingLog::run_flusher, this);
  return true;
}

void CeilingLog::close() {
  {
    std::lock_guard<std::mutex> guard(m_queue_mutex);
    m_stop = true;
  }
  m_work.notify_one();
  if (m_flusher.joinable()) m_flusher.join();
  if (m_file >= 0) ::close(m_file);
  free(m_ring);
}

uint64_t CeilingLog::append(const void *bytes, size_t length) {
  const uint64_t begin = m_end.fetch_add(length);
  const uint64_t at = begin % ring_size;
  const size_t first = std::min<uint64_t>(length, ring_size - at);
  memcpy(m_ring + at, bytes, first);
  memcpy(m_ring, static_cast<const unsigned char *>(bytes) + first, length - first);
  return begin + length;
}

void CeilingLog::write_out(uint64_t from, uint64_t to) {
  from = from / block * block;
  to = (to + block - 1) / block * block;
  while (from < to) {
    const uint64_t at = from % ring_size;
    const uint64_t length = std::min(to - from, ring_size - at);
    if (pwrite(m_file, m_ring + at, length, static_cast<off_t>(at)) != static_cast<ssize_t>(length))
      fail("ceiling log: write");
    from += length;
  }
}

/* Under m_flush_mutex. */
void CeilingLog::flush() {
  const uint64_t end = m_end.load();
  const uint64_t durable = m_durable.load();
  if (end == durable) return;
  write_out(std::max(durable, end > ring_size ? end - ring_size : 0), end);
  if (fdatasync(m_file)) fail("ceiling log: flush");
  m_durable.store(end);
}

void CeilingLog::make_durable(uint64_t position, void *thd, void *(*hold)(void *),
                              void (*release)(void *)) {
  if (m_durable.load() >= position) return;
  if (m_flush_mutex.try_lock()) {
    flush();
    m_flush_mutex.unlock();
    return;
  }
  void *token = hold(thd);
  if (!token) {
    std::lock_guard<std::mutex> guard(m_flush_mutex);
    if (m_durable.load() < position) flush();
    return;
  }
  bool wake;
  {
    std::lock_guard<std::mutex> guard(m_queue_mutex);
    m_release = release;
    wake = m_queue.empty();
    m_queue.push_back({position, token});
  }
  if (wake) m_work.notify_one();
}

void CeilingLog::run_flusher() {
  std::vector<Waiting> group;
  for (;;) {
    {
      std::unique_lock<std::mutex> guard(m_queue_mutex);
      m_work.wait(guard, [this] { return m_stop || !m_queue.empty(); });
      if (m_queue.empty()) return;
      group.swap(m_queue);
    }
    const uint64_t wanted =
        std::max_element(group.begin(), group.end(), [](const Waiting &a, const Waiting &b) {
          return a.position < b.position;
        })->position;
    {
      std::lock_guard<std::mutex> guard(m_flush_mutex);
      if (m_durable.load() < wanted) flush();
    }
    for (const Waiting &w : group) m_release(w.token);
    group.clear();
  }
}
