/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_id.h - the build-id of an ELF image, in a file or in memory.
 *
 *     unsigned char id[IMAGE_ID_MAX];
 *     size_t n = image_build_id(get, ctx, id);      // 0: it has none, or cannot be read
 *
 * get() gives n bytes of the image at the file's offset `at`: 0, or not. Only the ELF header, the program headers and the
 * notes are asked for. Nothing that is read is trusted.
 */
#ifndef PROBING_INSPECT_IMAGE_ID_H
#define PROBING_INSPECT_IMAGE_ID_H

#include <stddef.h>
#include <stdint.h>

#define IMAGE_ID_MAX 64
typedef int (*image_get_fn)(const void *ctx, uint64_t at, void *buf, size_t n);
size_t image_build_id(image_get_fn get, const void *ctx, unsigned char *id);

#endif
