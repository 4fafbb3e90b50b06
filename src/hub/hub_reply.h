// SPDX-License-Identifier: MIT
// Parses a hub's replies. Pure; every value that a server sends is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/choose_file.h"
#include "hub/web_request.h"

namespace moestro {

// Limits of what is taken: a repository of the hub has some thousand files, a page a thousand.
inline constexpr size_t kMostReplyBytes = size_t{4} << 20;
inline constexpr size_t kMostPages = 50;

// The commit of api/models/<repo>/revision/<revision>. kIo: not the hub's language.
Result<std::string> ParseCommit(std::string_view body);
// Files of a page of api/models/<repo>/tree/<commit>. Skips folders, files whose path is not safe
// or whose size is not a number, and files beyond the limit. kIo: not such a list.
Result<std::vector<HubFile>> ParseTree(std::string_view body);
// Names of repositories of api/models?…; other texts are skipped. Empty: not such a list.
std::vector<std::string> ParseRepoNames(std::string_view body);
// The address that a Link header calls the next one; empty: no next page.
std::string NextPage(std::string_view link);

// An ETag without "W/" and quotes.
std::string PlainEtag(std::string_view etag);
// An ETag that If-Range may carry, as it was written; empty: a weak one or none.
std::string StrongEtag(const WebHead& head);
// A name of a blob in the cache: letters, digits, '-' and '_', at least 16 of them.
bool IsBlobName(std::string_view name);

// "bytes 0-99/1000".
struct ContentRange {
  ByteRange range;
  uint64_t whole = 0;  // bytes
};
std::optional<ContentRange> ParseContentRange(std::string_view text);
// Decimal digits alone; nullopt: anything else or beyond 2^63 - 1.
std::optional<uint64_t> ParseSize(std::string_view text);
std::optional<uint64_t> SizeHeader(const WebHead& head, const std::string& name);

}  // namespace moestro
