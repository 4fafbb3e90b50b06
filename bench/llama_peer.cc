// SPDX-License-Identifier: MIT
// llama.cpp's side of bench/compare.sh and bench/gpu.py: prefill and decode of random tokens
// through libllama, timed apart, one JSON object on stdout. On the CPU in two variants: weights as
// they lie in the file (mmap), or repacked into faster layouts (--repack: anonymous memory, must
// fit). With --gpu-layers on the first GPU that ggml has, as llama.cpp's own programs compute
// there; --cpu-moe and --moe-cache are their --n-cpu-moe and --moe-cache-mib.
//
// Several sequences decode together: one row of each is a step, one batch for llama.cpp.
//
// --depth fills the cache with keys and values that nobody computed, as `moestro bench --depth`
// does, in one piece: that takes the cache's memory a second time. One token is evaluated to see
// what a state looks like; if its layout is not known, all are, and "depth_evaluated" says so.
//
// A model that thrashes takes seconds per token, so each phase has a time limit; what was done
// until then is what is reported, with "stopped_early" set.
#include <ggml-backend.h>
#include <llama.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <format>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/distribution.h"
#include "llama_state.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model;
  int prompt = 128;
  int generate = 48;
  int warmup = 0;
  int threads = 2;
  int ctx = 0;    // of each sequence; 0: 4096, or what is needed
  int depth = 0;  // positions of each sequence before the first measured token
  int sequences = 1;
  uint32_t seed = 1;
  double seconds = 120.0;
  bool finishes_first = false;
  bool is_repacked = false;
  int ubatch = 512;
  int gpu_layers = 0;     // 0: the CPU alone
  int cpu_moe = 0;        // first layers whose experts stay in memory
  int64_t moe_cache = 0;  // MiB on the device for experts that stay in memory
};

struct Phase {
  int tokens = 0;
  double seconds = 0.0;
  bool is_stopped = false;  // by the time limit
  bool is_failed = false;
  std::vector<double> batch_ms;
  double tokens_per_second() const { return seconds > 0 ? tokens / seconds : 0.0; }
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct ModelDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct ContextDeleter {
  void operator()(llama_context* context) const { llama_free(context); }
};
struct BatchOwner {
  explicit BatchOwner(int rows) : batch(llama_batch_init(rows, 0, 1)) {}
  BatchOwner(const BatchOwner&) = delete;
  BatchOwner& operator=(const BatchOwner&) = delete;
  ~BatchOwner() { llama_batch_free(batch); }
  void Add(llama_token token, int position, int sequence) {
    const int row = batch.n_tokens++;
    batch.token[row] = token;
    batch.pos[row] = position;
    batch.n_seq_id[row] = 1;
    batch.seq_id[row][0] = sequence;
    batch.logits[row] = false;
  }
  llama_batch batch;
};
using ModelPtr = std::unique_ptr<llama_model, ModelDeleter>;
using ContextPtr = std::unique_ptr<llama_context, ContextDeleter>;

// Null for the CPU alone, or where ggml has no GPU.
ggml_backend_dev_t DeviceOf(const Options& options) {
  if (options.gpu_layers == 0) return nullptr;
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU);
  return device != nullptr ? device : ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_IGPU);
}

int64_t FreeBytesOf(ggml_backend_dev_t device) {
  size_t free = 0;
  size_t total = 0;
  if (device != nullptr) ggml_backend_dev_memory(device, &free, &total);
  return static_cast<int64_t>(free);
}

ModelPtr LoadModel(const Options& options, ggml_backend_dev_t device) {
  llama_model_params params = llama_model_default_params();
  std::vector<ggml_backend_dev_t> devices{device, nullptr};
  params.devices = devices.data();
  params.n_gpu_layers = options.gpu_layers;
  std::deque<std::string> patterns;
  std::vector<llama_model_tensor_buft_override> overrides;
  for (int layer = 0; layer < options.cpu_moe; ++layer) {
    patterns.push_back(std::format(R"(blk\.{}\.ffn_(up|down|gate|gate_up)_(ch|)exps)", layer));
    overrides.push_back({patterns.back().c_str(), ggml_backend_cpu_buffer_type()});
  }
  overrides.push_back({nullptr, nullptr});
  params.tensor_buft_overrides = overrides.data();
  params.load_mode = LLAMA_LOAD_MODE_MMAP;
  params.use_extra_bufts = options.is_repacked;
  return ModelPtr(llama_model_load_from_file(options.model.c_str(), params));
}

ContextPtr OpenContext(llama_model* model, const Options& options) {
  llama_context_params params = llama_context_default_params();
  const auto sequences = static_cast<uint32_t>(options.sequences);
  params.n_seq_max = sequences;
  params.n_ctx = static_cast<uint32_t>(options.ctx) * sequences;
  params.n_batch = params.n_ctx;
  // A step's rows are one graph: a part of fewer would read the experts again.
  params.n_ubatch =
      std::max(std::min(static_cast<uint32_t>(options.ubatch), params.n_ctx), sequences);
  params.kv_unified = false;  // as llama.h recommends where sequences have nothing in common
  params.n_threads = options.threads;
  params.n_threads_batch = options.threads;
  params.op_offload = options.gpu_layers > 0;
  params.moe_cache_size = static_cast<size_t>(options.moe_cache) << 20U;
  return ContextPtr(llama_init_from_model(model, params));
}

class Peer {
 public:
  Peer(llama_context* context, const Options& options)
      : context_(context),
        options_(options),
        n_vocab_(llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context)))) {
    // As `moestro bench` seeds them: the first one's are those of a run of one sequence, and
    // seed + 1 is the warm-up's.
    for (int i = 0; i < options.sequences; ++i) {
      const auto nth = static_cast<uint32_t>(i);
      randoms_.emplace_back(i == 0 ? options.seed : options.seed + 1 + nth);
    }
    llama_set_abort_callback(
        context, [](void* self) { return Clock::now() > static_cast<Peer*>(self)->deadline_; },
        this);
  }

  // Touches every expert, so that what follows is measured with all of them in memory.
  bool WarmUp() {
    if (options_.warmup == 0) return true;
    deadline_ = Clock::time_point::max();
    std::mt19937_64 random(options_.seed + 1);
    BatchOwner rows(options_.warmup);
    for (int i = 0; i < options_.warmup; ++i) rows.Add(RandomToken(random), i, 0);
    bool is_ok = Evaluate(rows) == 0;
    // A device compiles what a single row takes when the first one comes.
    BatchOwner one(1);
    one.Add(RandomToken(random), options_.warmup, 0);
    is_ok = is_ok && (options_.gpu_layers == 0 || Evaluate(one) == 0);
    Forget();
    return is_ok;
  }
  void Forget() { llama_memory_clear(llama_get_memory(context_), false); }

  // The first positions of every sequence; false if llama.cpp refuses.
  bool FillDepth() {
    if (options_.depth == 0) return true;
    deadline_ = Clock::time_point::max();
    for (int i = 0; i < options_.sequences; ++i) {
      if (MakeUp(i)) {
        // Tokens of the text that nobody evaluates, so that the others are moestro's.
        randoms_[static_cast<size_t>(i)].discard(static_cast<uint64_t>(options_.depth));
      } else if (!EvaluateDepth(i)) {
        return false;
      }
    }
    return true;
  }
  bool is_depth_evaluated() const { return is_depth_evaluated_; }

  // One sequence after the other.
  Phase Prefill() {
    return Measure(options_.prompt > 0 ? options_.sequences : 0, options_.prompt, [&](int i) {
      BatchOwner rows(options_.prompt);
      for (int at = 0; at < options_.prompt; ++at) {
        rows.Add(RandomToken(randoms_[static_cast<size_t>(i)]), options_.depth + at, i);
      }
      return Evaluate(rows);
    });
  }
  // All of them side by side.
  Phase Decode() {
    return Measure(options_.generate, options_.sequences, [&](int step) {
      BatchOwner rows(options_.sequences);
      for (int i = 0; i < options_.sequences; ++i) {
        const int at = options_.depth + options_.prompt + step;
        rows.Add(RandomToken(randoms_[static_cast<size_t>(i)]), at, i);
        rows.batch.logits[i] = true;
      }
      return Evaluate(rows);
    });
  }

 private:
  bool MakeUp(int sequence) {
    BatchOwner first(1);
    first.Add(0, 0, sequence);
    if (Evaluate(first) != 0) return false;
    std::vector<uint8_t> one(llama_state_seq_get_size(context_, sequence));
    one.resize(llama_state_seq_get_data(context_, one.data(), one.size(), sequence));
    const auto nth = static_cast<uint64_t>(sequence);
    const auto made = moestro::MadeUpState::Make(one, static_cast<uint32_t>(options_.depth),
                                                 sequence, options_.seed + nth);
    return made &&
           llama_state_seq_set_data(context_, made->data(), made->size(), sequence) ==
               made->size() &&
           llama_memory_seq_pos_max(llama_get_memory(context_), sequence) == options_.depth - 1;
  }
  bool EvaluateDepth(int sequence) {
    is_depth_evaluated_ = true;
    llama_memory_seq_rm(llama_get_memory(context_), sequence, -1, -1);
    BatchOwner rows(options_.depth);
    std::mt19937_64& random = randoms_[static_cast<size_t>(sequence)];
    for (int at = 0; at < options_.depth; ++at) rows.Add(RandomToken(random), at, sequence);
    return Evaluate(rows) == 0;
  }

  llama_token RandomToken(std::mt19937_64& random) const {
    return static_cast<llama_token>(random() % static_cast<uint32_t>(n_vocab_));
  }

  int Evaluate(BatchOwner& rows) {
    rows.batch.logits[rows.batch.n_tokens - 1] = true;
    const int status = llama_decode(context_, rows.batch);
    llama_synchronize(context_);
    return status;
  }

  template <typename EvaluateNth>
  Phase Measure(int batches, int batch_tokens, EvaluateNth&& evaluate) {
    constexpr int kAborted = 2;  // llama_decode: stopped by the callback
    Phase phase;
    const Clock::time_point start = Clock::now();
    const Clock::time_point limit = start + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(options_.seconds));
    for (int i = 0; i < batches; ++i) {
      deadline_ = i == 0 && options_.finishes_first ? Clock::time_point::max() : limit;
      const Clock::time_point before = Clock::now();
      const int status = evaluate(i);
      if (status != 0) {
        phase.is_stopped = status == kAborted;
        phase.is_failed = !phase.is_stopped;
        // Nothing finished: what is left to say is how long it took.
        if (phase.tokens == 0) phase.seconds = SecondsSince(start);
        return phase;
      }
      phase.batch_ms.push_back(1000.0 * SecondsSince(before));
      phase.tokens += batch_tokens;
      phase.seconds = SecondsSince(start);
    }
    return phase;
  }

  llama_context* context_;
  const Options& options_;
  int n_vocab_;
  std::vector<std::mt19937_64> randoms_;  // of each sequence
  Clock::time_point deadline_;
  bool is_depth_evaluated_ = false;
};

std::string PhaseJson(const char* name, const Phase& phase) {
  return std::format(
      R"("{0}_tokens":{1},"{0}_seconds":{2:.6f},"{0}_tps":{3:.6f},"{0}_stopped_early":{4},)"
      R"("{0}_ms_p10":{5:.3f},"{0}_ms_p50":{6:.3f})",
      name, phase.tokens, phase.seconds, phase.tokens_per_second(), phase.is_stopped,
      moestro::Quantile(phase.batch_ms, 0.1), moestro::Quantile(phase.batch_ms, 0.5));
}

int Fails(const std::string& sentence) {
  std::fprintf(stderr, "%s\n", sentence.c_str());
  return 1;
}

int Run(const Options& options) {
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  ggml_backend_load_all();
  llama_backend_init();
  const Clock::time_point start = Clock::now();
  ggml_backend_dev_t device = DeviceOf(options);
  if (options.gpu_layers > 0 && device == nullptr) return Fails("ggml finds no GPU");
  const int64_t free_before = FreeBytesOf(device);
  const ModelPtr model = LoadModel(options, device);
  if (!model) return Fails("llama.cpp cannot load " + options.model);
  const ContextPtr context = OpenContext(model.get(), options);
  if (!context) {
    return Fails(std::format("llama.cpp cannot make a context of {} tokens", options.ctx));
  }
  const double load_seconds = SecondsSince(start);
  Peer peer(context.get(), options);
  if (!peer.WarmUp()) return Fails(std::format("the warm-up of {} tokens failed", options.warmup));
  if (!peer.FillDepth()) return Fails(std::format("filling {} positions failed", options.depth));
  const Phase prefill = peer.Prefill();
  const Phase decode = prefill.is_stopped ? Phase{} : peer.Decode();
  if (prefill.is_failed || decode.is_failed) return Fails("llama_decode failed");
  std::puts(std::format(R"({{"engine":"llama.cpp","version":"{}","ggml":"{}","repacked":{},)"
                        R"("threads":{},"sequences":{},"ctx":{},"depth":{},"depth_evaluated":{},)"
                        R"("gpu_layers":{},"cpu_moe":{},"moe_cache":{},"ubatch":{},)"
                        R"("device_bytes":{},"load_seconds":{:.3f},{},{}}})",
                        llama_version(), ggml_version(), options.is_repacked, options.threads,
                        options.sequences, options.ctx, options.depth, peer.is_depth_evaluated(),
                        options.gpu_layers, options.cpu_moe, options.moe_cache, options.ubatch,
                        free_before - FreeBytesOf(device), load_seconds,
                        PhaseJson("prefill", prefill), PhaseJson("decode", decode))
                .c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("llama.cpp's speed with random tokens, as JSON");
  app.add_option("model", options.model, "GGUF file")->required();
  app.add_option("-p,--prompt", options.prompt, "tokens of prefill")->check(CLI::NonNegativeNumber);
  app.add_option("-n,--generate", options.generate, "tokens of decode")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--warmup", options.warmup,
                 "tokens evaluated and forgotten before the clock starts")
      ->check(CLI::NonNegativeNumber);
  app.add_option("-t,--threads", options.threads, "compute threads")->check(CLI::PositiveNumber);
  app.add_option("-c,--ctx", options.ctx,
                 "tokens of context of each sequence (4096, or as many as are needed)")
      ->check(CLI::PositiveNumber);
  app.add_option("--depth", options.depth,
                 "positions of each sequence before the first token, with made-up keys and values")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("--sequences", options.sequences,
                 "independent sequences that are decoded together, one row of each in a step")
      ->check(CLI::Range(1, 64));
  app.add_option("--seed", options.seed, "of the random tokens");
  app.add_option("--seconds", options.seconds, "time limit of each phase")
      ->check(CLI::PositiveNumber);
  app.add_flag("--finish-first", options.finishes_first,
               "the time limit spares the first batch of a phase, so that there is a rate");
  app.add_flag("--repack", options.is_repacked, "weights in llama.cpp's repacked layouts");
  app.add_option("--ubatch", options.ubatch, "most tokens that are computed at once")
      ->check(CLI::PositiveNumber);
  app.add_option("--gpu-layers", options.gpu_layers, "layers on the first GPU (0: the CPU alone)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--cpu-moe", options.cpu_moe, "first layers whose experts stay in memory")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--moe-cache", options.moe_cache, "MiB on the GPU for experts that stay in memory")
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  const int needed = std::max(options.depth + options.prompt + options.generate,
                              options.warmup + (options.gpu_layers > 0 ? 1 : 0));
  if (options.ctx == 0) options.ctx = std::max(4096, needed);
  if (options.ctx < needed) {
    std::fprintf(stderr, "%d tokens do not fit a context of %d; raise --ctx\n", needed,
                 options.ctx);
    return 1;
  }
  return Run(options);
}
