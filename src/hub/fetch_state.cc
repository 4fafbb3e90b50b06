// SPDX-License-Identifier: MIT
#include "hub/fetch_state.h"

#include <optional>
#include <utility>

#include "base/json.h"
#include "hub/hub_reply.h"
#include "hub/model_name.h"

namespace moestro {
namespace {

constexpr int64_t kFormat = 1;
constexpr size_t kMostStateValues = 100'000;

std::optional<uint64_t> Bytes(const std::optional<JsonView>& value) {
  const auto integer = value ? value->integer() : std::nullopt;
  if (!integer || *integer < 0) return std::nullopt;
  return static_cast<uint64_t>(*integer);
}

}  // namespace

std::string StateText(const FetchState& state) {
  Json done = Json::Array();
  for (const ByteRange& range : state.done.ranges()) {
    Json pair = Json::Array();
    pair.Push(range.begin).Push(range.end);
    done.Push(std::move(pair));
  }
  Json object = Json::Object();
  object.Set("format", kFormat)
      .Set("repo", state.repo)
      .Set("commit", state.commit)
      .Set("file", state.file)
      .Set("etag", state.etag)
      .Set("size", state.size)
      .Set("content_etag", state.content_etag)
      .Set("done", std::move(done));
  return object.Dump() + "\n";
}

Result<FetchState> ParseState(std::string_view text) {
  const auto bad = [](const char* what) {
    return Fail(Errc::kInvalidFile, "the state of a download has {}", what);
  };
  if (text.size() > kMostStateBytes) return bad("too many bytes");
  const auto json = Json::Parse(text, kMostStateValues);
  if (!json) return bad("no JSON");
  const auto word = [&](const char* key) {
    const auto found = json->Find(key);
    return found ? found->text().value_or("") : std::string();
  };
  const auto format = json->Find("format");
  if (!format || format->integer() != kFormat) return bad("another format");
  FetchState state{.repo = word("repo"),
                   .commit = word("commit"),
                   .file = word("file"),
                   .etag = word("etag"),
                   .content_etag = word("content_etag")};
  const auto size = Bytes(json->Find("size"));
  if (!IsRepoName(state.repo) || !IsCommit(state.commit) || !IsSafePath(state.file) ||
      !IsBlobName(state.etag) || !size) {
    return bad("names that are none");
  }
  state.size = *size;
  // The ETag goes into a header of a request, so only a strong one may stay.
  if (StrongEtag({.headers = {{"etag", state.content_etag}}}).empty()) state.content_etag.clear();
  const auto done = json->Find("done");
  if (!done || done->kind() != JsonKind::kArray) return bad("no ranges");
  uint64_t after = 0;
  for (size_t i = 0; i < done->size(); ++i) {
    const auto begin = Bytes(done->At(i)->At(0));
    const auto end = Bytes(done->At(i)->At(1));
    if (!begin || !end || *begin < after || *begin >= *end || *end > state.size) {
      return bad("ranges that do not follow one another");
    }
    state.done.Add({.begin = *begin, .end = *end});
    after = *end;
  }
  return state;
}

bool MayGoOn(const FetchState& state, const FetchState& wanted) {
  return state.repo == wanted.repo && state.etag == wanted.etag && state.size == wanted.size;
}

}  // namespace moestro
