/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_file.h - files and folders that their owner can use, whatever the umask is.
 *
 *     int fd = open("trace.zst", O_RDWR | O_CREAT | O_EXCL, 0600);
 *     own_file(fd);                                        // readable and writable by us, under umask 0777, too
 *     int rc = own_dir_make("trace.zst.d", 0755);          // 0 or -errno; it may be there already
 *
 * An umask such as 0277 or 0777 withholds permissions from the owner. A file that was just made can be used all the same by who made it, but
 * a folder cannot, and the next program can open neither. The umask belongs to the whole process, which is the recorded one, so it
 * is not changed, not even for a moment. Any thread.
 */
#ifndef PROBING_TRACES_OWN_FILE_H
#define PROBING_TRACES_OWN_FILE_H

#include <sys/types.h>

/* Call for a new file: its owner may read and write it. */
void own_file(int fd);
/* Call for a new folder: its owner may read, write and enter it. Never follows a symlink. */
void own_dir(const char *path);
/* Makes a folder, unless there is one, or a link to one. -ELOOP: the link is another user's, who has chosen where it leads. Returns 0 or -errno. */
int own_dir_make(const char *path, mode_t mode);

#endif
