/*
 * systemd ends a server that is not ready within TimeoutStartSec (EXTEND_TIMEOUT_USEC of
 * sd_notify(3)): a long crash recovery would then never come to its end. So each word that the core
 * says while it opens the database asks for more time.
 *
 * The protocol is one datagram to the socket that the environment names; libsystemd is not needed
 * for it. The socket is in the environment only under a unit of Type=notify, and the server reads
 * it for its own "ready", so it stays there.
 */
#include "server_compat.h"

#include "systemd_notice.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ferrite {

void extend_start_timeout(const char *text) {
  const char *path = getenv("NOTIFY_SOCKET");
  sockaddr_un to{};
  size_t length = path ? strlen(path) : 0;
  if (length < 2 || length >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) return;
  to.sun_family = AF_UNIX;
  memcpy(to.sun_path, path, length);
  /* An abstract name begins with a zero byte. */
  if (path[0] == '@') to.sun_path[0] = '\0';

  char message[512];
  int size = snprintf(message, sizeof message, "EXTEND_TIMEOUT_USEC=%llu\nSTATUS=Ferrite: %s",
                      start_extension_s * 1000000ULL, text);
  if (size <= 0) return;
  if (static_cast<size_t>(size) >= sizeof message) size = sizeof message - 1;
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  /* Lost words are no harm: the next one comes. */
  (void)!sendto(fd, message, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT,
                reinterpret_cast<const sockaddr *>(&to),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
  close(fd);
}

}  // namespace ferrite
