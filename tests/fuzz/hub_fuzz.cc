// SPDX-License-Identifier: MIT
// Any bytes as what a hub sends, what the cache holds and what people type: the first byte picks
// which. Nothing that is accepted leads out of its folder.
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "base/result.h"
#include "hub/choose_file.h"
#include "hub/fetch_plan.h"
#include "hub/hub_reply.h"
#include "hub/model_name.h"
#include "tests/fuzz/memory_file_testing.h"

namespace moestro {
namespace {

void TakeTree(const std::string& text) {
  const auto files = ParseTree(text);
  if (!files) {
    CHECK(!files.error().message.contains('\n'));
    return;
  }
  for (const HubFile& file : *files) CHECK(IsSafePath(file.path));
  for (const char* quantisation : {"", "Q4_0", "q"}) {
    const auto model = ChooseModel(
        *files, {.kind = ModelNameKind::kHub, .repo = "o/r", .quantisation = quantisation});
    if (!model) {
      CHECK(!model.error().message.contains('\n'));
      continue;
    }
    CHECK(model->is_complete() && !model->files.empty());
  }
}

void TakeState(const std::string& text) {
  const auto state = ParseState(text);
  if (!state) {
    CHECK(!state.error().message.contains('\n'));
    return;
  }
  CHECK(ParseState(StateText(*state)) == *state);
  CHECK(state->done.bytes() <= state->size);
}

void TakeName(const std::string& text) {
  const auto name =
      ParseModelName(text, "https://hub.test", [](const std::string&) { return false; });
  if (!name) {
    CHECK(!name.error().message.contains('\n'));
    return;
  }
  if (name->kind != ModelNameKind::kHub) return;
  CHECK(IsRepoName(name->repo) && IsRevision(name->revision));
  CHECK(name->file.empty() || IsSafePath(name->file));
  const std::string folder = HubLayout("c").RepoFolder(name->repo);
  CHECK(HubLayout::RepoOf(folder.substr(2)) == name->repo);
  const auto again =
      ParseModelName(TextOf(*name), "https://hub.test", [](const std::string&) { return false; });
  // What a file's name may hold beside letters is taken from addresses alone.
  CHECK(!again || *again == *name || !name->file.empty());
}

void TakeHeaders(const std::string& text) {
  std::ignore = NextPage(text);
  std::ignore = PlainEtag(text);
  std::ignore = ParseCommit(text);
  std::ignore = ParseSize(text);
  if (const auto range = ParseContentRange(text)) {
    CHECK(range->range.begin < range->range.end && range->range.end <= range->whole);
  }
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(moestro::AsText(data + 1, size - 1));
  switch (data[0] % 4) {
    case 0:
      moestro::TakeTree(text);
      break;
    case 1:
      moestro::TakeState(text);
      break;
    case 2:
      moestro::TakeName(text);
      break;
    default:
      moestro::TakeHeaders(text);
  }
  return 0;
}
