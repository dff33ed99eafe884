/*
 * The ceiling's log: bytes go into a ring and from there to a file of the same size; what they say
 * is never read.
 *
 * The way to the disk is the one that Ferrite takes: a caller who is alone flushes for itself; in
 * company one flusher thread flushes whenever the device is free, and the callers' replies are held
 * back by the server until then.
 */
#ifndef CEILING_LOG_H
#define CEILING_LOG_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

class CeilingLog {
 public:
  bool open(const char *path);
  void close();

  /* Copies bytes into the ring; returns the position after them. */
  uint64_t append(const void *bytes, size_t length);

  /* Hands over a reply to be released when `position` is durable; or waits itself when the caller
     is alone or the server has no reply to hold back. `hold` and `release` are the server's. */
  void make_durable(uint64_t position, void *thd, void *(*hold)(void *), void (*release)(void *));

 private:
  struct Waiting {
    uint64_t position;
    void *token;
  };

  void flush();
  void write_out(uint64_t from, uint64_t to);
  void run_flusher();

  static constexpr uint64_t ring_size = 64ULL << 20;
  static constexpr uint64_t block = 4096;

  int m_file = -1;
  unsigned char *m_ring = nullptr;
  std::atomic<uint64_t> m_end{0};
  std::atomic<uint64_t> m_durable{0};
  std::mutex m_flush_mutex;
  std::mutex m_queue_mutex;
  std::condition_variable m_work;
  std::vector<Waiting> m_queue;
  void (*m_release)(void *) = nullptr;
  bool m_stop = false;
  std::thread m_flusher;
};

#endif
