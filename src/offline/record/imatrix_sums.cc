// SPDX-License-Identifier: MIT
#include "offline/record/imatrix_sums.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "model/expert_tensors.h"

namespace moestro {
namespace {

void AddSquares(std::span<const float> values, std::span<double> sums) {
  for (size_t i = 0; i < values.size(); ++i) {
    sums[i] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
}

}  // namespace

ImatrixShape ImatrixShape::Of(const ModelSpec& spec) {
  return {.n_experts = spec.router.n_expert,
          .n_embd = spec.n_embd_expert(),
          .n_ff = spec.expert_widths()};
}

uint64_t ImatrixShape::columns() const {
  uint64_t columns = 0;  // of one expert in each layer
  for (const uint32_t width : n_ff) columns += uint64_t{width} + n_embd;
  return columns * n_experts;
}

ImatrixSums::ImatrixSums(ImatrixShape shape)
    : shape_(std::move(shape)), layers_(shape_.n_ff.size()) {
  const size_t experts = shape_.n_experts;
  for (size_t l = 0; l < layers_.size(); ++l) {
    layers_[l].inputs.resize(experts * shape_.n_embd);
    layers_[l].products.resize(experts * shape_.n_ff[l]);
    layers_[l].counts.resize(experts);
  }
}

uint64_t ImatrixSums::BytesFor(const ImatrixShape& shape) {
  return shape.columns() * sizeof(double) + shape.n_ff.size() * shape.n_experts * sizeof(uint64_t);
}

void ImatrixSums::Add(const SeenExperts& seen) {
  Layer& layer = layers_[seen.plan.layer.value];
  const size_t n_embd = shape_.n_embd;
  const size_t n_ff = shape_.n_ff[seen.plan.layer.value];
  for (const PlannedExpert& expert : seen.plan.experts) {
    const size_t e = expert.key.expert.value;
    const auto inputs = std::span(layer.inputs).subspan(e * n_embd, n_embd);
    const auto products = std::span(layer.products).subspan(e * n_ff, n_ff);
    for (uint32_t i = 0; i < expert.n_pairs; ++i) {
      const size_t pair = expert.first_pair + i;
      const size_t row = seen.plan.row_of[pair];
      AddSquares(seen.inputs.subspan(row * n_embd, n_embd), inputs);
      AddSquares(seen.products.subspan(pair * n_ff, n_ff), products);
    }
    layer.counts[e] += expert.n_pairs;
  }
}

bool ImatrixSums::is_finite() const {
  const auto all_finite = [](std::span<const double> values) {
    return std::ranges::all_of(values,
                               [](double v) { return std::isfinite(static_cast<float>(v)); });
  };
  return std::ranges::all_of(layers_, [&](const Layer& layer) {
    return all_finite(layer.inputs) && all_finite(layer.products);
  });
}

Result<std::vector<ImatrixSlice>> PlacesOf(const GgufFile& file, const ModelSpec& spec) {
  std::vector<ImatrixSlice> places;
  for (uint32_t layer = 0; layer < spec.n_layer(); ++layer) {
    if (!spec.has_experts(layer)) continue;
    TRY(const auto tensors, FindExpertTensors(file, spec, layer, "convert the model again"));
    for (const ExpertTensor& tensor : tensors) {
      places.push_back({.name = tensor.info->name,
                        .matrix = tensor.matrix,
                        .layer = spec.expert_layers_before(layer),
                        .first_expert = tensor.first_expert,
                        .n_experts = tensor.n_experts});
    }
  }
  return places;
}

std::vector<ImatrixEntry> EntriesOf(std::span<const ImatrixSlice> places, const ImatrixSums& sums) {
  const ImatrixShape& shape = sums.shape();
  std::vector<ImatrixEntry> entries;
  for (const ImatrixSlice& place : places) {
    const bool is_down = place.matrix == Matrix::kDown;
    const uint32_t n_in = is_down ? shape.n_ff[place.layer] : shape.n_embd;
    const ImatrixSums::Layer& layer = sums.layer(place.layer);
    const std::span<const double> all = is_down ? layer.products : layer.inputs;
    entries.push_back(
        {.name = place.name,
         .n_in = n_in,
         .sums = all.subspan(size_t{place.first_expert} * n_in, size_t{place.n_experts} * n_in),
         .counts = std::span(layer.counts).subspan(place.first_expert, place.n_experts)});
  }
  return entries;
}

namespace {

constexpr uint32_t kMostCounts = 4096;  // of experts, of layers
constexpr uint32_t kMostWidth = 1U << 24;
constexpr uint64_t kMostDescription = 64 * kMiB;
// ggml's names are shorter than 64, with the suffix of WriteImatrix().
constexpr size_t kMostTensorName = 48;

void AppendText(std::string& bytes, std::string_view text) {
  AppendNumber(bytes, static_cast<uint32_t>(text.size()));
  bytes += text;
}

// Description of a run, which all its shards share.
std::string EncodeDescription(const ImatrixRun& run) {
  const ImatrixShape& shape = run.sums.shape();
  std::string bytes;
  AppendNumber(bytes, run.info.chunk_size);
  AppendNumber(bytes, shape.n_experts);
  AppendNumber(bytes, shape.n_embd);
  AppendNumber(bytes, static_cast<uint32_t>(shape.n_ff.size()));
  for (const uint32_t n_ff : shape.n_ff) AppendNumber(bytes, n_ff);
  AppendNumber(bytes, static_cast<uint32_t>(run.places.size()));
  for (const ImatrixSlice& place : run.places) {
    AppendNumber(bytes, static_cast<uint32_t>(std::to_underlying(place.matrix)));
    AppendNumber(bytes, place.layer);
    AppendNumber(bytes, place.first_expert);
    AppendNumber(bytes, place.n_experts);
    AppendText(bytes, place.name);
  }
  return bytes;
}

// A description's bytes, front to back.
class DescriptionReader {
 public:
  explicit DescriptionReader(std::string_view bytes) : bytes_(bytes) {}

  // 0 and "", and is_good() no longer holds, where nothing is left.
  uint32_t TakeNumber() {
    const std::string_view raw = TakeBytes(sizeof(uint32_t));
    return raw.empty() ? 0 : Decoder(raw).Take<uint32_t>();
  }
  std::string_view TakeText() { return TakeBytes(TakeNumber()); }
  bool is_good() const { return is_good_; }
  bool is_at_end() const { return is_good_ && bytes_.empty(); }

 private:
  std::string_view TakeBytes(size_t bytes) {
    is_good_ = is_good_ && bytes <= bytes_.size();
    if (!is_good_) return {};
    const std::string_view taken = bytes_.substr(0, bytes);
    bytes_.remove_prefix(bytes);
    return taken;
  }

  std::string_view bytes_;
  bool is_good_ = true;
};

struct Description {
  uint32_t chunk_size = 0;
  ImatrixShape shape = {};
  std::vector<ImatrixSlice> places = {};
};

// Whether `name` is a tensor's name: no other bytes occur in GGUF's names, and C's strings would
// cut some of them.
bool IsTensorName(std::string_view name) {
  return !name.empty() && name.size() <= kMostTensorName && Printable(name) == name;
}

// Decodes a description; nullopt: malformed.
std::optional<Description> DecodeDescription(std::string_view bytes) {
  DescriptionReader reader(bytes);
  Description d{.chunk_size = reader.TakeNumber()};
  d.shape.n_experts = reader.TakeNumber();
  d.shape.n_embd = reader.TakeNumber();
  const uint32_t layers = reader.TakeNumber();
  if (d.shape.n_experts < 1 || d.shape.n_experts > kMostCounts || d.shape.n_embd < 1 ||
      d.shape.n_embd > kMostWidth || layers < 1 || layers > kMostCounts) {
    return std::nullopt;
  }
  for (uint32_t l = 0; l < layers; ++l) {
    d.shape.n_ff.push_back(reader.TakeNumber());
    if (d.shape.n_ff.back() < 1 || d.shape.n_ff.back() > kMostWidth) return std::nullopt;
  }
  std::set<std::string> names;  // a name that came twice would end the process in ggml
  const uint32_t places = reader.TakeNumber();
  for (uint32_t i = 0; i < places; ++i) {
    const uint32_t matrix = reader.TakeNumber();
    ImatrixSlice place;
    place.layer = reader.TakeNumber();
    place.first_expert = reader.TakeNumber();
    place.n_experts = reader.TakeNumber();
    place.name = reader.TakeText();
    const bool is_good = matrix < kMatrices && place.layer < layers && place.n_experts >= 1 &&
                         place.first_expert < d.shape.n_experts &&
                         place.n_experts <= d.shape.n_experts - place.first_expert &&
                         IsTensorName(place.name) && names.insert(place.name).second;
    if (!is_good || !reader.is_good()) return std::nullopt;
    place.matrix = static_cast<Matrix>(matrix);
    d.places.push_back(std::move(place));
  }
  return reader.is_at_end() ? std::optional(std::move(d)) : std::nullopt;
}

template <class T>
Status AddNumbers(BinaryWriter& file, std::span<const T> numbers) {
  const auto bytes = std::as_bytes(numbers);
  return file.Add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Status AddSums(ShardPayload& payload, std::span<double> sums) {
  std::vector<double> more(std::min(sums.size(), kFileWindow / sizeof(double)));
  while (!sums.empty()) {
    const auto part = std::span(more).first(std::min(sums.size(), more.size()));
    TRY_STATUS(payload.TakeNumbers(part));
    for (size_t i = 0; i < part.size(); ++i) {
      if (!(part[i] >= 0.0 && std::isfinite(part[i]))) {
        return payload.Damaged(Format("{} is no sum of squares", part[i]));
      }
      sums[i] += part[i];
    }
    sums = sums.subspan(part.size());
  }
  return {};
}

Status AddCounts(ShardPayload& payload, uint64_t tokens, std::span<uint64_t> counts) {
  std::vector<uint64_t> more(counts.size());
  TRY_STATUS(payload.TakeNumbers(std::span(more)));
  for (size_t i = 0; i < more.size(); ++i) {
    if (more[i] > tokens) {
      return payload.Damaged(Format("{} inputs of an expert, of {} tokens", more[i], tokens));
    }
    counts[i] += more[i];
  }
  return {};
}

// Part before the sums: texts' names, the description and the number of tokens.
struct ShardHead {
  std::vector<std::string> datasets = {};
  std::string description = {};
  uint64_t tokens = 0;
};

Result<ShardHead> TakeHead(ShardPayload& payload) {
  ShardHead head;
  TRY(const auto names_bytes, payload.TakeNumber<uint64_t>());
  TRY(const auto description_bytes, payload.TakeNumber<uint64_t>());
  TRY(head.tokens, payload.TakeNumber<uint64_t>());
  if (names_bytes > kMostDescription || description_bytes > kMostDescription ||
      head.tokens > uint64_t{1} << 48) {
    return payload.Damaged("its numbers are none of importances");
  }
  TRY(const std::string names, payload.Take(names_bytes));
  TRY(head.description, payload.Take(description_bytes));
  DescriptionReader reader(names);
  while (!reader.is_at_end()) {
    head.datasets.emplace_back(reader.TakeText());
    if (!reader.is_good()) return payload.Damaged("its names of texts are none");
  }
  return head;
}

Result<ImatrixRun> EmptyRunOf(const ShardPayload& payload, const ShardHead& head) {
  auto description = DecodeDescription(head.description);
  if (!description) return payload.Damaged("its description of the model's tensors is none");
  const ImatrixShape& shape = description->shape;
  if (payload.left() != ImatrixSums::BytesFor(shape)) {  // before so much memory is allocated
    return payload.Damaged(
        Format("{} bytes of sums, not {}", payload.left(), ImatrixSums::BytesFor(shape)));
  }
  return ImatrixRun{.info = {.datasets = head.datasets, .chunk_size = description->chunk_size},
                    .places = std::move(description->places),
                    .sums = ImatrixSums(std::move(description->shape))};
}

}  // namespace

Status WriteImatrixShard(const OutputPath& path, const ShardInfo& shard, const ImatrixRun& run) {
  std::string names;
  for (const std::string& name : run.info.datasets) AppendText(names, name);
  const std::string description = EncodeDescription(run);
  std::string head;
  AppendNumber(head, uint64_t{names.size()});
  AppendNumber(head, uint64_t{description.size()});
  AppendNumber(head, run.tokens);
  head += names + description;
  const ImatrixShape& shape = run.sums.shape();
  TRY(BinaryWriter file, BeginShard(path, shard, head.size() + ImatrixSums::BytesFor(shape)));
  TRY_STATUS(file.Add(head));
  for (size_t l = 0; l < shape.n_ff.size(); ++l) {
    const ImatrixSums::Layer& layer = run.sums.layer(l);
    TRY_STATUS(AddNumbers(file, std::span(layer.counts)));
    TRY_STATUS(AddNumbers(file, std::span(layer.inputs)));
    TRY_STATUS(AddNumbers(file, std::span(layer.products)));
  }
  return file.Finish();
}

Result<ImatrixRun> MergeImatrix(std::span<const FoundShard> shards) {
  std::optional<ImatrixRun> run;
  std::string description;
  for (const FoundShard& shard : shards) {
    if (shard.info.range().size() == 0) continue;
    TRY(ShardPayload payload, ShardPayload::Open(shard));
    TRY(ShardHead head, TakeHead(payload));
    if (!run) {
      TRY(run, EmptyRunOf(payload, head));
      description = head.description;
    } else if (head.description != description) {
      return Fail(Errc::kInvalidRequest,
                  "{}: of other tensors than the shards before it; merge "
                  "the shards of one run",
                  shard.path);
    }
    run->tokens += head.tokens;
    for (size_t l = 0; l < run->sums.shape().n_ff.size(); ++l) {
      ImatrixSums::Layer& layer = run->sums.layer(l);
      TRY_STATUS(AddCounts(payload, head.tokens, layer.counts));
      TRY_STATUS(AddSums(payload, layer.inputs));
      TRY_STATUS(AddSums(payload, layer.products));
    }
    TRY_STATUS(payload.CheckEnd());
  }
  run->info.chunk_count = static_cast<uint32_t>(shards.front().info.windows);
  return *std::move(run);
}

}  // namespace moestro
