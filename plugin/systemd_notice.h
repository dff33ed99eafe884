/*
 * Asks systemd for more time while a start takes long: see systemd_notice.cc.
 */
#ifndef SYSTEMD_NOTICE_H
#define SYSTEMD_NOTICE_H

namespace ferrite {

/* For how long the next word may be away, in seconds. Recovery has one every 5 s. */
constexpr unsigned start_extension_s = 60;

/* `text`: what the start is at, shown by systemctl status. Does nothing outside of systemd. */
void extend_start_timeout(const char *text);

}  // namespace ferrite

#endif
