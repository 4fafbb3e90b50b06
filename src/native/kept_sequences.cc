// SPDX-License-Identifier: MIT
#include "native/kept_sequences.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/hash.h"
#include "device/attention_kernel.h"
#include "learned/beside_model.h"
#include "memory/kv_choices.h"

namespace moestro {
namespace {

// The content of a small file that decides something.
Result<std::string> HashOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (!file.good() && !file.eof()) {
    return Fail(Errc::kIo, "cannot read {}: {}", path, std::strerror(errno));
  }
  Fnv1a hash;
  hash.Add(bytes);
  return Format("{:016x}", hash.value());
}

// The processor's kernels: theirs of other names round otherwise.
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

void AddLossyChoices(const LossyOptions& lossy, bool has_low, KvChoices& choices) {
  const LossyOptions usual;
  if (has_low || lossy.t1_of(has_low) < 1.0) {
    choices.Add("--t1", Format("{}", lossy.t1_of(has_low)));
    choices.Add("--t2", Format("{}", lossy.t2_of(has_low)));
  }
  if (lossy.drop_below > 0.0) choices.Add("--drop-below", Format("{}", lossy.drop_below));
  if (lossy.prefer_resident > 0.0) {
    choices.Add("--prefer-resident", Format("{}", lossy.prefer_resident));
  }
  if (lossy.keep != usual.keep) choices.Add("--keep", Format("{}", lossy.keep));
  if (lossy.rescales) choices.Add("--rescale", "on");
  if (lossy.upgrades) choices.Add("--upgrade", "on");
  if (lossy.importance != usual.importance) choices.Add("--importance", lossy.importance);
}

void AddLittleChoices(const LittleOptions& little, uint32_t n_used, KvChoices& choices) {
  choices.Add("--little", Format("{}", n_used));
  if (little.fallback_share) {
    choices.Add("--little-share", Format("{}", *little.fallback_share));
  } else {
    choices.Add("--gamma", Format("{}", little.gamma));
  }
  choices.Add("--little-misses", std::string(ToString(little.misses)));
}

std::string Joined(std::span<const uint64_t> numbers) {
  std::string text;
  for (const uint64_t n : numbers) text += Format("{}{}", text.empty() ? "" : ",", n);
  return text;
}

// What a device computes depends on where things are, and so on what was measured; a file of costs
// makes that repeatable, so then all of it counts.
Status AddDeviceChoices(const KeptSequences::Parts& parts, KvChoices& all) {
  const DeviceOptions& options = parts.opened.options.device;
  if (parts.devices.empty()) return {};
  std::string names;
  std::string their_slots;
  for (const std::unique_ptr<UsedDevice>& gpu : parts.devices.used()) {
    const DeviceInfo& info = gpu->device.info();
    names += Format("{}{} ({})", names.empty() ? "" : ", ", info.name, info.description);
    their_slots += Format("{}{}", their_slots.empty() ? "" : "; ", Joined(gpu->slots));
  }
  all.Add("--device", std::move(names));
  all.Add("--dense", parts.dense.is_on_device() ? "device" : "cpu");
  all.Add("--place", std::string(NameOf(options.place)));
  all.Add("--tiers", std::string(NameOf(options.tiers)));
  if (options.latency_model.empty()) return {};
  TRY(std::string costs, HashOfFile(options.latency_model));
  all.Add("--latency-model", std::move(costs));
  all.Add("device-slots", std::move(their_slots));
  all.Add("--prefetch",
          Format("{} by {}", parts.opened.plan.look_ahead, parts.opened.predictor.name));
  return {};
}

// Matrices of a layer that ggml or a device multiplies, of a type that it may multiply otherwise
// for many rows than for one (docs/decisions/0007).
bool DependsOnRows(bool fast_batches, const DensePart& dense) {
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

// docs/sequence-format.md has the table of flags that this must agree with.
Result<std::string> FindChoices(const KeptSequences::Parts& parts, std::optional<uint64_t> low_id) {
  const OpenedModel& opened = parts.opened;
  const EngineOptions& options = opened.options;
  KvChoices all;
  if (options.kv_type != KvType::kF16) all.Add("--kv-type", std::string(NameOf(options.kv_type)));
  const bool has_low = opened.catalog.has_low();
  const bool is_lossy = !options.lossy.is_exact(has_low);
  const bool is_little = opened.little.is_on();
  const bool asks_slots = is_lossy || (is_little && opened.little.misses != Misses::kRead);
  if (asks_slots && low_id) all.Add("--low", Format("{:016x}", *low_id));
  if (is_lossy) AddLossyChoices(options.lossy, has_low, all);
  if (is_lossy && options.lossy.importance == "score-norm") {
    const std::string path =
        options.norms.empty() ? NormsBeside(opened.model.gguf.paths().front()) : options.norms;
    TRY(std::string norms, HashOfFile(path));
    all.Add("--norms", std::move(norms));
  }
  if (is_little) AddLittleChoices(options.little, opened.little.n_used, all);
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
  if (DependsOnRows(options.fast_batches, parts.dense))
    all.Add("rows", Format("of many at once, {} of a prompt", opened.plan.chunk));
  all.Add(kKernelsChoice, KernelNames(*opened.cpu, opened.kernels, options));
  return all.text();
}

}  // namespace

Result<std::unique_ptr<KeptSequences>> KeptSequences::Create(const Parts& parts) {
  std::unique_ptr<KeptSequences> kept(new KeptSequences(parts));
  TRY_STATUS(kept->CheckLow());
  TRY(kept->choices_, FindChoices(parts, kept->low_id_));
  return kept;
}

Result<uint64_t> KeptSequences::Weights() {
  KnownWeights& known = parts_.known;
  if (!known.id) {
    const OpenedModel& opened = parts_.opened;
    TRY(known.id, FindWeightsId(opened.model, opened.options.weights_folder, known.dense_sum));
  }
  return *known.id;
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
  return SequenceHome{
      .origin = {.model = opened.model.id.fingerprint, .weights = weights, .choices = choices_},
      .shape = opened.remembers,
      .n_ctx = opened.plan.n_ctx,
      .n_vocab = opened.model.spec.n_vocab};
}

Result<KvOrigin> KeptSequences::Origin() {
  TRY(SequenceHome home, Home());
  return std::move(home.origin);
}

Status KeptSequences::Save(SequenceId sequence, const std::string& notes, const std::string& path) {
  TRY(const SequenceHome home, Home());
  return SaveTimeline(path, notes, home, *parts_.sequences.Find(sequence),
                      {.kv = parts_.dense.kv(), .states = parts_.dense.states()});
}

Result<SavedTokens> KeptSequences::Peek(const std::string& path) {
  TRY(const SequenceHome home, Home());
  TRY(const SequenceFile file, SequenceFile::Open(path, home));
  return file.ReadTokens();
}

Result<SavedSequence> KeptSequences::Restore(const std::string& path) {
  SequenceTable& sequences = parts_.sequences;
  TRY(const SequenceHome home, Home());
  TRY(const SequenceFile file, SequenceFile::Open(path, home));
  TRY_STATUS(file.Check());
  TRY(SavedTokens text, file.ReadTokens());
  SavedSequence saved{.sequence = Sequence(sequences, sequences.New()),
                      .notes = std::move(text.notes)};
  const SequenceId id = saved.sequence.id();
  TRY_STATUS(sequences.Append(id, text.tokens));
  TRY_STATUS(file.ReadInto(*sequences.Find(id),
                           {.kv = parts_.dense.kv(), .states = parts_.dense.states()}));
  sequences.Commit(id);
  return saved;
}

}  // namespace moestro
