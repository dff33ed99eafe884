/*
 * The release, as the server shows it for the engine and its views (INFORMATION_SCHEMA.PLUGINS).
 * The core's own is the workspace's in Cargo.toml.
 */
#ifndef FERRITE_VERSION_H
#define FERRITE_VERSION_H

#define FERRITE_VERSION_NUMBER 0x0002
#define FERRITE_VERSION_TEXT "0.2.0"

#endif
