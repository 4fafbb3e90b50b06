// SPDX-License-Identifier: MIT
// How long a prompt goes on after it has been asked to stop.
//
//   stop_bench MODEL [--ram 6G] [--chunk 2048] [--stops 30] [--behind 0] [--within 8]
//
// A prompt of one chunk begins behind `behind` positions and is stopped after a random part of
// `within` seconds, `stops` times. Prints milliseconds from RequestStop() to the return of Step():
// each, then median, nine tenths and the longest.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/number.h"
#include "core/random_tokens.h"
#include "native/native_engine.h"

namespace moestro {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

struct Setting {
  std::string model;
  uint64_t ram = 6 * kGiB;
  uint32_t chunk = 2048;
  uint32_t stops = 30;
  uint32_t behind = 0;
  double within = 8.0;  // seconds
};

Batch PromptOf(const Sequence& sequence, std::span<const Token> tokens) {
  Batch batch;
  for (const Token token : tokens) {
    batch.rows.push_back({.sequence = sequence.id(),
                          .position = sequence.position() + static_cast<uint32_t>(batch.size()),
                          .token = token,
                          .kind = RowKind::kPrompt});
  }
  return batch;
}

// From the request to the return of the step.
Result<double> StopAfter(NativeEngine& engine, const Batch& batch, double seconds) {
  std::chrono::steady_clock::time_point requested;
  Status done;
  {
    const std::jthread stopper([&] {
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
      requested = std::chrono::steady_clock::now();
      engine.RequestStop();
    });
    done = engine.Step(batch);
  }
  const auto returned = std::chrono::steady_clock::now();
  if (done)
    return Fail(Errc::kInvalidRequest, "the prompt was done before it was stopped; lower --within");
  if (done.error().code != Errc::kInterrupted) return std::unexpected(done.error());
  return Milliseconds(returned - requested).count();
}

Status Measure(const Setting& setting) {
  EngineOptions options;
  options.ram_bytes = setting.ram;
  options.chunk = setting.chunk;
  options.ctx = setting.behind + setting.chunk + 64;
  TRY(const auto engine, NativeEngine::Open(setting.model, options));
  const uint32_t n_vocab = engine->spec().n_vocab;
  Sequence sequence = engine->NewSequence();
  if (setting.behind > 0) {
    TRY_STATUS(engine->MakeUp(sequence, RandomTokens(setting.behind, n_vocab, 1), 1));
  }
  const Batch batch = PromptOf(sequence, RandomTokens(setting.chunk, n_vocab, 2));
  std::mt19937_64 random(kDefaultSeed);
  std::vector<double> took;
  for (uint32_t i = 0; i < setting.stops; ++i) {
    const double share = static_cast<double>(random() % 1000) / 1000.0;
    TRY(const double milliseconds, StopAfter(*engine, batch, 0.05 + share * setting.within));
    std::printf("%.1f%s", milliseconds, i + 1 < setting.stops ? " " : "\n");
    std::fflush(stdout);
    took.push_back(milliseconds);
  }
  std::ranges::sort(took);
  std::printf("median %.1f ms, nine tenths %.1f ms, longest %.1f ms of %zu\n",
              took[took.size() / 2], took[took.size() * 9 / 10], took.back(), took.size());
  return {};
}

Result<Setting> Parse(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) return Fail(Errc::kUsage, "usage: stop_bench MODEL [--FLAG N]...");
  Setting setting{.model = argv[1]};
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    const auto number = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
    if (flag == "--ram") {
      TRY(setting.ram, ParseBytes(value));
    } else if (flag == "--within") {
      setting.within = std::strtod(value.c_str(), nullptr);
    } else if (flag == "--chunk") {
      setting.chunk = number;
    } else if (flag == "--stops") {
      setting.stops = std::max(1U, number);
    } else if (flag == "--behind") {
      setting.behind = number;
    } else {
      return Fail(Errc::kUsage, "unknown flag '{}'", flag);
    }
  }
  return setting;
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  const auto setting = moestro::Parse(argc, argv);
  const moestro::Status done =
      setting ? moestro::Measure(*setting) : std::unexpected(setting.error());
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
