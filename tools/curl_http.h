/* SPDX-License-Identifier: Apache-2.0 */
/*
 * curl_http.h - restricts libcurl to HTTP and HTTPS, so that what a user gives as HOST:PORT is never taken for a file or a mail server.
 *
 *     curl_http_only(curl);
 */
#ifndef PROBING_TOOLS_CURL_HTTP_H
#define PROBING_TOOLS_CURL_HTTP_H

#include <curl/curl.h>

static inline void curl_http_only(CURL *curl) {
#if LIBCURL_VERSION_NUM >=                                                                         \
    0x075500 /* older ones (Ubuntu 22.04's) have bits, which it calls deprecated */
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

#endif
