// SPDX-License-Identifier: MIT
#include "native/kept_sequences.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/input_file.h"
#include "base/text.h"
#include "compute/attention_kernel.h"
#include "engine/option_table.h"
#include "learned/beside_model.h"
#include "memory/sequence_text.h"

namespace moestro {
namespace {

// Hashes the content of a small file that results depend on.
Result<std::string> HashOfFile(const std::string& path) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  TRY(const std::string bytes, ReadRegularFile(path, kMostBytes));
  Fnv1a hash;
  hash.Add(bytes);
  return Format("{:016x}", hash.value());
}

// Names of the processor's kernels: kernels of other names round otherwise.
std::string KernelNames(const CpuDevice& device, const std::vector<FormKernels>& kernels,
                        const EngineOptions& options) {
  std::string names = Format("ggml {} {}", ggml_version(), device.plug_in());
  std::string_view last;
  for (const FormKernels& form : kernels) {
    for (const ExpertKernel& kernel : form.kernel) {
      if (kernel.name != last) names += Format(", {}", kernel.name);
      last = kernel.name;
    }
  }
  names += Format(", attention {}", AttentionKernel::ForThisMachine().name);
  if (!options.repack) names += ", dense weights as in the file";
  return names;
}

// The options that count, and the choices of keys and values that they are written to.
struct Written {
  const EngineOptions& options;  // defaults are resolved for this run
  KvChoices& choices;
};

// Adds each row of the option table that `is_asked` picks and whose text counts, not a value that
// the engine derives. Unless `is_said_always`, rows that equal a run without flags are left out.
void AddRows(const Written& to, bool is_said_always,
             const std::function<bool(const OptionRow&)>& is_asked) {
  const EngineOptions usual;
  for (const OptionRow& row : OptionTable()) {
    if (row.is_resolved || !is_asked(row)) continue;
    std::optional<std::string> text = row.get(to.options);
    if (!text || (!is_said_always && text == row.get(usual))) continue;
    if (row.on_off) text = *text == "1" ? "on" : "off";
    to.choices.Add(Format("--{}", row.name()), *std::move(text));
  }
}

// Whether a lossy row is in the part of the table for little options (`is_little`), or in another
// part.
bool IsLossy(const OptionRow& row, bool is_little) {
  return row.counts == Counts::kLossy && is_little == (row.part == OptionGroup::kLittle);
}

// The options as the run takes them: defaults that depend on the model or on other options are
// filled in.
EngineOptions Resolved(const OpenedModel& opened) {
  EngineOptions options = opened.options;
  if (opened.catalog.has_low()) {
    options.lossy.t1 = options.lossy.t1_of(true);
    options.lossy.t2 = options.lossy.t2_of(true);
  }
  options.little.is_half = false;
  options.little.n_used.reset();
  if (opened.little.is_on()) options.little.n_used = opened.little.n_used;
  return options;
}

std::string Joined(std::span<const uint64_t> numbers) {
  std::string text;
  for (const uint64_t n : numbers) text += Format("{}{}", text.empty() ? "" : ",", n);
  return text;
}

// Adds the choices of devices. A device's results depend on where experts are, and so on measured
// costs. A file of costs makes places repeatable, so then the file, slots and prefetching count,
// too.
Status AddDeviceChoices(const DecidingParts& parts, KvChoices& all) {
  const DeviceOptions& options = parts.opened.options.device;
  if (parts.devices.empty()) return {};
  std::string names;
  std::string their_slots;
  for (const std::unique_ptr<Device>& one : parts.devices.devices()) {
    const DeviceInfo& info = one->info();
    names += Format("{}{} ({})", names.empty() ? "" : ", ", info.name, info.description);
    their_slots += Format("{}{}", their_slots.empty() ? "" : "; ", Joined(one->slots()));
  }
  all.Add("--device", std::move(names));
  all.Add("--dense", parts.dense.is_on_device() ? "device" : "cpu");
  AddRows({.options = parts.opened.options, .choices = all}, true,
          [](const OptionRow& row) { return row.counts == Counts::kDevice; });
  if (options.latency_model.empty()) return {};
  TRY(std::string costs, HashOfFile(options.latency_model));
  all.Add("--latency-model", std::move(costs));
  all.Add("device-slots", std::move(their_slots));
  all.Add("--prefetch",
          Format("{} by {}", parts.opened.plan.look_ahead, parts.opened.predictor.name));
  return {};
}

// Whether ggml or a device multiplies some matrix of a layer by a type that may round otherwise for
// many rows than for one (docs/decisions/0007).
bool DependsOnRows(bool fast_batches, const DenseModel& dense) {
  if (!fast_batches && !dense.is_on_device()) return false;
  bool depends = false;
  for (const LayerRoles<ggml_tensor*>& layer : dense.tensors().layers) {
    ForEachLayerRole(
        [&](const TensorRole& role, ggml_tensor* tensor) {
          const bool is_product = tensor != nullptr && role.use != TensorUse::kByHost &&
                                  role.kind == TensorKind::kMatrix;
          depends = depends || (is_product && ggml_is_quantized(tensor->type) &&
                                RowProductOf(tensor) == nullptr);
        },
        layer);
  }
  return depends;
}

// docs/sequence-format.md has the table of flags that this function and the option rows must agree
// with.
Result<std::string> FindChoices(const DecidingParts& parts, std::optional<uint64_t> low_id) {
  const OpenedModel& opened = parts.opened;
  const EngineOptions& options = opened.options;
  KvChoices all;
  const EngineOptions resolved = Resolved(opened);
  const Written to{.options = resolved, .choices = all};
  AddRows(to, false, [](const OptionRow& row) { return row.counts == Counts::kYes; });
  const bool has_low = opened.catalog.has_low();
  const bool is_lossy = !options.lossy.is_exact(has_low);
  const bool is_little = opened.little.is_on();
  const bool asks_slots = is_lossy || (is_little && opened.little.misses != Misses::kRead);
  if (asks_slots && low_id) all.Add("--low", Format("{:016x}", *low_id));
  if (is_lossy) AddRows(to, false, [](const OptionRow& row) { return IsLossy(row, false); });
  if (is_lossy && options.lossy.importance == "score-norm") {
    const std::string path =
        options.norms.empty() ? NormsBeside(opened.model.gguf.paths().front()) : options.norms;
    TRY(std::string norms, HashOfFile(path));
    all.Add("--norms", std::move(norms));
  }
  if (is_little) AddRows(to, true, [](const OptionRow& row) { return IsLossy(row, true); });
  if (is_little && options.little.fallback_share) {
    all.Add("--little-share", Format("{}", *options.little.fallback_share));
  }
  if (asks_slots && !options.lossy.is_reproducible) all.Add("--lossy-mode", "opportunistic");
  TRY_STATUS(AddDeviceChoices(parts, all));
  if (asks_slots || (!parts.devices.empty() && parts.is_repeatable)) {
    all.Add("slots", Joined(parts.slots.slots()));
    all.Add("--policy", ToText(parts.slots.policy()));
  }
  const AttentionSpec* rotated = opened.model.spec.first_rotated();
  if (rotated != nullptr && rotated->form.long_short_factors) {
    all.Add("rope",
            opened.plan.n_ctx > rotated->rope->original_context ? "long factors" : "short factors");
  }
  if (opened.model.spec.predicts()) all.Add("layers", "and one that predicts further tokens");
  if (DependsOnRows(options.fast_batches, parts.dense))
    all.Add("rows", Format("of many at once, {} of a prompt", opened.plan.chunk));
  all.Add(kKernelsChoice, KernelNames(*opened.cpu, opened.kernels, options));
  return all.text();
}

}  // namespace

Result<std::unique_ptr<KeptSequences>> KeptSequences::Create(const DecidingParts& parts,
                                                             KnownWeights& known,
                                                             SequenceTable& sequences) {
  std::unique_ptr<KeptSequences> kept(new KeptSequences(parts, known, sequences));
  TRY_STATUS(kept->CheckLow());
  TRY(kept->choices_, FindChoices(parts, kept->low_id_));
  return kept;
}

Result<uint64_t> KeptSequences::Weights() {
  if (!known_.id) {
    const OpenedModel& opened = parts_.opened;
    TRY(known_.id, FindWeightsId(opened.model, opened.options.weights_folder, known_.dense_sum));
  }
  return *known_.id;
}

Status KeptSequences::CheckLow() {
  const OpenedModel& opened = parts_.opened;
  if (!opened.low) return {};
  uint64_t own = 0;
  if (opened.low->source_weights) {
    TRY(own, Weights());
  }
  TRY_STATUS(CheckLowWeights(*opened.low, opened.model, own));
  TRY(low_id_, FindWeightsId(*opened.low, opened.options.weights_folder));
  return {};
}

Result<SequenceHome> KeptSequences::Home() {
  TRY(const uint64_t weights, Weights());
  const OpenedModel& opened = parts_.opened;
  return SequenceHome{.text = {.origin = {.model = opened.model.id.fingerprint,
                                          .weights = weights,
                                          .choices = choices_},
                               .n_ctx = opened.plan.n_ctx,
                               .n_vocab = opened.model.spec.n_vocab},
                      .shape = opened.remembers,
                      .recent = opened.plan.recent};
}

Result<KvOrigin> KeptSequences::Origin() {
  TRY(SequenceHome home, Home());
  return std::move(home.text.origin);
}

Status KeptSequences::Save(SequenceId sequence, const std::string& notes, const OutputPath& path) {
  TRY(const SequenceHome home, Home());
  return SaveTimeline(path, notes, home, *sequences_.Find(sequence),
                      {.kv = parts_.dense.kv(), .states = parts_.dense.states()});
}

Result<SavedTokens> KeptSequences::Peek(const std::string& path) {
  TRY(const SequenceHome home, Home());
  TRY(const SequenceFile file, SequenceFile::Open(path, home));
  return file.ReadTokens();
}

Result<SavedSequence> KeptSequences::Restore(const std::string& path) {
  TRY(const SequenceHome home, Home());
  TRY(const SequenceFile file, SequenceFile::Open(path, home));
  TRY_STATUS(file.Check());
  TRY(SavedTokens text, file.ReadTokens());
  SavedSequence saved{.sequence = Sequence(sequences_, sequences_.New()),
                      .notes = std::move(text.notes)};
  const SequenceId id = saved.sequence.id();
  const std::span<const Token> tokens = text.tokens;
  if (tokens.empty()) return saved;  // a state's place would hold another text's
  uint32_t at = 0;
  for (const uint32_t checkpoint : text.checkpoints) {
    TRY_STATUS(sequences_.Append(id, tokens.subspan(at, checkpoint - at)));
    sequences_.KeepInStep(id);
    at = checkpoint;
  }
  TRY_STATUS(sequences_.Append(id, tokens.subspan(at)));
  TRY_STATUS(sequences_.FillWindows(id, text.checkpoints));
  TRY_STATUS(file.ReadInto(*sequences_.Find(id),
                           {.kv = parts_.dense.kv(), .states = parts_.dense.states()}));
  sequences_.Commit(id);
  return saved;
}

}  // namespace moestro
