// SPDX-License-Identifier: MIT
// Any bytes as the only shard of a run: merging must return, and what it accepts must be written.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "offline/eval/eval_stats.h"
#include "offline/record/imatrix_sums.h"
#include "offline/record/profile.h"
#include "offline/shard_file.h"
#include "tests/fuzz/memory_file_testing.h"

namespace moestro {
namespace {

// In memory where there is such a folder; one file of the process, which each run replaces.
std::string OutputPath() {
  const std::filesystem::path memory = "/dev/shm";
  const bool has_memory = std::filesystem::is_directory(memory);
  const auto folder = has_memory ? memory : std::filesystem::temp_directory_path();
  return folder / Format("moestro-shard-fuzz-{}", getpid());
}

template <class T>
bool IsGood(const Result<T>& result) {
  if (!result) CHECK(!result.error().message.contains('\n'));
  return result.has_value();
}

void MergeOne(const std::vector<FoundShard>& shards, const std::string& path) {
  switch (shards.front().info.command) {
    case ShardOf::kEval:
      if (const auto merged = MergeEval(shards); IsGood(merged)) {
        CHECK(merged->figures.tokens >= merged->windows);
      }
      return;
    case ShardOf::kImatrix:
      if (const auto run = MergeImatrix(shards); IsGood(run)) {
        IsGood(WriteImatrix(path, run->info, EntriesOf(run->places, run->sums)));
      }
      return;
    case ShardOf::kProfile:
      if (const auto routing = MergeProfile(shards); IsGood(routing)) {
        // Its tables are of [expert][expert]: large ones would only be slow.
        if (routing->model.shape.experts() > 4096) return;
        IsGood(LearnProfile(*routing, routing->model, {.paths = path}));
      }
      return;
    case ShardOf::kTrace:
      IsGood(MergeTraces(shards, path));
      return;
  }
}

void MergeAny(const std::string& shard) {
  static const std::string output = OutputPath();
  const auto found = FindShards({&shard, 1});
  if (IsGood(found)) MergeOne(*found, output);
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moestro::MemoryFile memory;
  moestro::MergeAny(memory.FillSummed(data, size));
  return 0;
}
