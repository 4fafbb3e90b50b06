// SPDX-License-Identifier: MIT
#include "memory/sequence_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "memory/memory_use.h"

namespace moestro {
namespace {

constexpr FileFormat kSequenceFormat{.magic = "MOESEQKV",
                                     .version = 6,
                                     .oldest = 2,
                                     .header_bytes = 84,
                                     .what = "a saved sequence",
                                     .origin = "save one with 'moestro run --session'",
                                     .remedy = "start a new one"};
constexpr uint32_t kAlikeVersion = 2;  // stores one pair of widths for all layers' keys and values
constexpr uint64_t kAlikeHeaderBytes = 60;
constexpr uint32_t kWholeVersion = 3;  // has all positions of every layer
constexpr uint64_t kWholeHeaderBytes = 68;
constexpr uint32_t kRecentVersion = 4;  // has no checkpoints
constexpr uint64_t kRecentHeaderBytes = 80;
constexpr uint32_t kNoWindowsVersion = 5;   // has no windows before checkpoints
constexpr uint32_t kMaxCheckpoints = 1024;  // most that a reader accepts
constexpr uint32_t kMaxBlock = 65536;       // positions; the most that a reader accepts

constexpr std::array kParts = {KvCache::KvTensor::kKeys, KvCache::KvTensor::kValues};

// True if all layers have cells of these widths and no state.
bool IsAlike(const MemoryShape& shape, uint32_t keys, uint32_t values) {
  return std::ranges::all_of(shape.layers, [&](const LayerMemory& layer) {
    return layer.keys == keys && layer.values == values && layer.state_values == 0;
  });
}

// Positions from `first` on, before `end`, whose cells are neighbours.
uint32_t NeighboursFrom(const KvTimeline& cells, uint32_t first, uint32_t end) {
  uint32_t n = 1;
  while (first + n < end && cells.cell(first + n) == cells.cell(first) + n) ++n;
  return n;
}

// The cells of a layer.
const KvTimeline& CellsOf(const Timeline& timeline, const KvCache& kv, uint32_t layer) {
  return kv.is_recent(layer) ? timeline.recent.now : timeline.cells;
}

// Calls visit(part, number of the cell) for each pool that ends at a position in [first, end): the
// keys of all, then their values.
template <class Visit>
Status ForEachPool(const Timeline& timeline, uint32_t first, uint32_t end, uint32_t layer,
                   const KvCache& kv, Visit visit) {
  const uint32_t n = kv.shape().layers[layer].pool;
  if (n == 0) return {};
  for (const KvCache::KvTensor part : kParts) {
    for (uint32_t p = first / n * n + n - 1; p < end; p += n) {
      TRY_STATUS(visit(part, kv.pool_cell(layer, part, timeline.cells.cell(p))));
    }
  }
  return {};
}

// The parts that a layer's cells of positions have.
std::span<const KvCache::KvTensor> PartsOf(const KvCache& kv, uint32_t layer) {
  return std::span(kParts).first(kv.shape().layers[layer].pool > 0 ? 1 : kParts.size());
}

// Writes the pools of a layer that end at positions [first, end).
Status AddPools(BinaryWriter& out, const Timeline& timeline, uint32_t first, uint32_t end,
                uint32_t layer, const KvCache& kv) {
  return ForEachPool(
      timeline, first, end, layer, kv, [&](KvCache::KvTensor part, uint32_t cell) -> Status {
        std::string bytes(kv.cell_bytes(layer, part), '\0');
        TRY_STATUS(kv.Read(layer, part, cell, std::as_writable_bytes(std::span(bytes))));
        return out.Add(bytes);
      });
}

// Keys or values of a layer.
struct LayerPart {
  const KvCache& kv;
  uint32_t layer;
  KvCache::KvTensor part;
};

// Writes positions [first, end).
Status AddRows(BinaryWriter& out, const KvTimeline& cells, uint32_t first, uint32_t end,
               const LayerPart& of) {
  for (uint32_t p = first; p < end;) {
    const uint32_t run = NeighboursFrom(cells, p, end);
    std::string bytes(run * of.kv.cell_bytes(of.layer, of.part), '\0');
    TRY_STATUS(
        of.kv.Read(of.layer, of.part, cells.cell(p), std::as_writable_bytes(std::span(bytes))));
    TRY_STATUS(out.Add(bytes));
    p += run;
  }
  return {};
}

// Writes positions [first, end) of every layer that holds them, and pools: keys, then values.
Status AddCells(BinaryWriter& out, const Timeline& timeline, uint32_t first, uint32_t end,
                const KvCache& kv, uint32_t recent_first) {
  for (uint32_t l = 0; l < kv.layers(); ++l) {
    if (kv.shape().layers[l].shares_cells) continue;
    TRY_STATUS(AddPools(out, timeline, first, end, l, kv));
    if (kv.is_recent(l) && first < recent_first) continue;
    const KvTimeline& cells = CellsOf(timeline, kv, l);
    for (const KvCache::KvTensor part : PartsOf(kv, l)) {
      TRY_STATUS(AddRows(out, cells, first, end, {.kv = kv, .layer = l, .part = part}));
    }
  }
  return {};
}

std::string_view BytesOf(std::span<const float> state) {
  return {reinterpret_cast<const char*>(state.data()), state.size_bytes()};
}

uint64_t HeaderBytes(uint32_t version) {
  if (version == kAlikeVersion) return kAlikeHeaderBytes;
  if (version == kWholeVersion) return kWholeHeaderBytes;
  return version == kRecentVersion ? kRecentHeaderBytes : kSequenceFormat.header_bytes;
}

// Positions before the end at which the timeline has a state.
std::vector<uint32_t> StatePositions(const Timeline& timeline) {
  std::vector<uint32_t> positions;
  for (const Checkpoint& checkpoint : timeline.checkpoints) {
    if (checkpoint.position < timeline.tokens.size()) positions.push_back(checkpoint.position);
  }
  return positions;
}

// Nullptr: no window before the position is kept.
const KvTimeline* WindowAt(const Timeline& timeline, uint32_t position) {
  const auto& kept = timeline.recent.kept;
  const auto found = std::ranges::find(kept, position, &KvTimeline::length);
  return found == kept.end() ? nullptr : &*found;
}

StateSlot StateAt(const Timeline& timeline, uint32_t position) {
  const auto found = std::ranges::find(timeline.checkpoints, position, &Checkpoint::position);
  CHECK(found != timeline.checkpoints.end());
  return found->state;
}

// Positions before the end from which every layer can go on: where layers have states or windows,
// those that have both.
std::vector<uint32_t> PositionsToSave(const Timeline& timeline, const SequenceHome& home) {
  std::vector<uint32_t> positions;
  if (home.shape.has_states()) {
    positions = StatePositions(timeline);
    std::erase_if(positions, [&](uint32_t position) {
      return home.recent.window > 0 && WindowAt(timeline, position) == nullptr;
    });
  } else {
    for (const KvTimeline& kept : timeline.recent.kept) {
      if (kept.length() < timeline.tokens.size()) positions.push_back(kept.length());
    }
  }
  return PositionsWorthSaving(positions);
}

// Writes a window: positions of layers that store the last positions alone, keys before values.
Status AddWindow(BinaryWriter& out, const KvTimeline& window, const KvCache& kv) {
  const uint32_t end = window.length();
  for (uint32_t l = 0; l < kv.layers(); ++l) {
    if (kv.shape().layers[l].shares_cells || !kv.is_recent(l)) continue;
    for (const KvCache::KvTensor part : PartsOf(kv, l)) {
      TRY_STATUS(AddRows(out, window, window.begin(), end, {.kv = kv, .layer = l, .part = part}));
    }
  }
  return {};
}

}  // namespace

Status SaveTimeline(const OutputPath& path, const std::string& notes, const SequenceHome& home,
                    const Timeline& timeline, const SequenceValues& values) {
  TRY_STATUS(CheckNotes(notes));
  TRY(BinaryWriter out, BinaryWriter::Create(path, FileReaders::kOwner));
  const auto n_tokens = static_cast<uint32_t>(timeline.tokens.size());
  std::string header = BeginHeader(kSequenceFormat);
  AppendNumber(header, KvBlocks::kPositions);
  AppendNumber(header, home.text.origin.model);
  AppendNumber(header, home.text.origin.weights);
  AppendNumber(header, static_cast<uint32_t>(home.shape.layers.size()));
  const uint64_t recent_bytes = home.recent.window > 0 ? home.shape.recent_bytes() : 0;
  const uint32_t recent_first = recent_bytes > 0 ? home.recent.FirstOf(n_tokens) : 0;
  AppendNumber(header, home.shape.position_bytes() - recent_bytes);
  AppendNumber(header, home.shape.state_bytes());
  AppendNumber(header, n_tokens);
  AppendNumber(header, static_cast<uint32_t>(notes.size()));
  AppendNumber(header, uint32_t{std::to_underlying(home.shape.type)});
  AppendNumber(header, static_cast<uint32_t>(home.text.origin.choices.size()));
  AppendNumber(header, recent_bytes);
  AppendNumber(header, recent_first);
  const std::vector<uint32_t> checkpoints = PositionsToSave(timeline, home);
  AppendNumber(header, static_cast<uint32_t>(checkpoints.size()));
  TRY_STATUS(out.Add(header));
  TRY_STATUS(AddText(out, home.text, notes, timeline.tokens));
  std::string positions;
  for (const uint32_t position : checkpoints) AppendNumber(positions, position);
  for (const uint32_t position : checkpoints) {
    if (recent_bytes > 0) AppendNumber(positions, WindowAt(timeline, position)->begin());
  }
  TRY_STATUS(out.Add(positions));
  for (uint32_t first = 0; first < n_tokens; first += KvBlocks::kPositions) {
    const uint32_t end = std::min(first + KvBlocks::kPositions, n_tokens);
    TRY_STATUS(AddCells(out, timeline, first, end, values.kv, recent_first));
  }
  if (home.shape.has_states() && n_tokens > 0) {
    CHECK(timeline.committed() == n_tokens);
    TRY_STATUS(out.Add(BytesOf(values.states.all(timeline.state->state))));
  }
  for (const uint32_t position : checkpoints) {
    if (!home.shape.has_states()) break;
    TRY_STATUS(out.Add(BytesOf(values.states.all(StateAt(timeline, position)))));
  }
  for (const uint32_t position : checkpoints) {
    if (recent_bytes > 0) TRY_STATUS(AddWindow(out, *WindowAt(timeline, position), values.kv));
  }
  return out.Finish();
}

bool SequenceFile::Header::has_windows() const {
  return version > kNoWindowsVersion && recent_bytes > 0;
}

uint64_t SequenceFile::Header::window_begin(uint32_t i) const {
  uint64_t begin = checkpoint_begin(n_checkpoints);
  for (const SavedCheckpoint& before : std::span(checkpoints).first(i))
    begin += (before.position - before.window_first) * recent_bytes;
  return begin;
}

Result<SequenceFile> SequenceFile::Open(const std::string& path, const SequenceHome& home) {
  TRY(InputFile file, InputFile::Open(path, kSequenceFormat));
  SequenceFile opened(std::move(file), home);
  TRY_STATUS(opened.ReadHeader());
  return opened;
}

Status SequenceFile::ReadHeader() {
  TRY(const std::string bytes, file_.ReadHeader());
  TRY(const std::string version, file_.Read(kSequenceFormat.magic.size(), sizeof(uint32_t)));
  header_.version = Decoder(version).Take<uint32_t>();
  Decoder in(bytes);
  header_.block = in.Take<uint32_t>();
  header_.text.model = in.Take<uint64_t>();
  header_.text.weights = in.Take<uint64_t>();
  header_.n_layer = in.Take<uint32_t>();
  const MemoryShape& shape = home_->shape;
  bool is_alike = true;
  if (header_.version == kAlikeVersion) {
    const auto keys = in.Take<uint32_t>();
    const auto values = in.Take<uint32_t>();
    is_alike = IsAlike(shape, keys, values);
  } else {
    header_.position_bytes = in.Take<uint64_t>();
    header_.state_bytes = in.Take<uint64_t>();
  }
  header_.text.n_tokens = in.Take<uint32_t>();
  header_.pool_bytes = shape.pool_bytes(header_.text.n_tokens);
  header_.text.notes_bytes = in.Take<uint32_t>();
  header_.type = in.Take<uint32_t>();
  header_.text.choices_bytes = in.Take<uint32_t>();
  if (header_.version > kWholeVersion) {
    header_.recent_bytes = in.Take<uint64_t>();
    header_.recent_first = in.Take<uint32_t>();
  }
  if (header_.version > kRecentVersion) header_.n_checkpoints = in.Take<uint32_t>();
  header_.text.begin = HeaderBytes(header_.version);
  TRY_STATUS(header_.text.CheckModel(file_, home_->text));
  if (!is_alike) return file_.Damaged("its shape is not the model's");
  if (header_.version == kAlikeVersion) header_.position_bytes = shape.position_bytes();
  TRY_STATUS(CheckShape());
  return header_.text.CheckChoices(file_, home_->text);
}

Status SequenceFile::CheckShape() {
  const MemoryShape& shape = home_->shape;
  if (header_.type >= kKvTypes.size()) {
    return file_.Damaged("its keys and values have an unknown type");
  }
  const auto type = static_cast<KvType>(header_.type);
  if (type != shape.type) {
    return Fail(Errc::kInvalidRequest,
                "{} holds keys and values in {}, and this run stores them in {}; use --kv-type {}",
                file_.path(), NameOf(type), NameOf(shape.type), NameOf(type));
  }
  const bool has_recent = header_.recent_bytes > 0;
  if (header_.n_layer != shape.layers.size()) {
    // Runs with another layer have other choices, which are a better reason.
    TRY_STATUS(header_.text.CheckSizes(file_, home_->text));
    TRY_STATUS(header_.text.CheckChoices(file_, home_->text));
  }
  if (header_.n_layer != shape.layers.size() ||
      (has_recent && header_.recent_bytes != shape.recent_bytes()) ||
      header_.position_bytes != shape.position_bytes() - header_.recent_bytes ||
      header_.state_bytes != shape.state_bytes() || header_.block == 0 ||
      header_.block > kMaxBlock || header_.n_checkpoints > kMaxCheckpoints ||
      (header_.n_checkpoints > 0 && header_.state_bytes == 0 && !header_.has_windows())) {
    return file_.Damaged("its shape is not the model's");
  }
  TRY_STATUS(header_.text.CheckSizes(file_, home_->text));
  TRY_STATUS(CheckRecent());
  TRY_STATUS(ReadCheckpoints());
  if (file_.size() == header_.file_bytes()) return {};
  return file_.CutShort(Format("{} bytes", header_.file_bytes()));
}

// Checks that the file holds every position of layers with a window that this run needs.
Status SequenceFile::CheckRecent() const {
  const uint32_t first = header_.recent_first;
  const bool is_whole = header_.recent_bytes > 0 ? first % header_.block == 0 : first == 0;
  if (!is_whole || first > header_.text.n_tokens) {
    return file_.Damaged("it says wrongly which positions it has");
  }
  if (first == 0) return {};
  if (home_->recent.window == 0) {
    return Fail(Errc::kInvalidRequest,
                "{} holds the last positions of layers with a window alone, and this run has room "
                "for all; raise --ctx",
                file_.path());
  }
  if (first <= home_->recent.FirstOf(header_.text.n_tokens)) return {};
  return file_.Damaged("it lacks positions that a window looks at");
}

Status SequenceFile::Check() const {
  TRY_STATUS(file_.CheckSum());
  return header_.text.WarnOfKernels(file_, home_->text);
}

Result<SavedTokens> SequenceFile::ReadTokens() const {
  TRY(SavedTokens saved, header_.text.Read(file_, home_->text));
  // Layers with windows of their own need one before each checkpoint.
  if (home_->recent.window > 0 && !header_.has_windows()) return saved;
  for (const SavedCheckpoint& at : header_.checkpoints) saved.checkpoints.push_back(at.position);
  return saved;
}

// Reads positions of checkpoints, and where their windows begin.
Status SequenceFile::ReadCheckpoints() {
  if (file_.size() < header_.cells_begin())
    return file_.CutShort(Format("{} bytes and more", header_.cells_begin()));
  TRY(const std::string bytes, file_.Read(header_.checkpoints_begin(), header_.table_bytes()));
  Decoder in(bytes);
  for (uint32_t i = 0; i < header_.n_checkpoints; ++i) {
    const auto position = in.Take<uint32_t>();
    const uint32_t before = header_.checkpoints.empty() ? 0 : header_.checkpoints.back().position;
    if (position <= before || position >= header_.text.n_tokens) {
      return file_.Damaged(Format("it has a state after {} tokens, out of order", position));
    }
    header_.checkpoints.push_back({.position = position, .window_first = position});
  }
  for (SavedCheckpoint& at : header_.checkpoints) {
    if (!header_.has_windows()) break;
    at.window_first = in.Take<uint32_t>();
    const bool is_known = home_->recent.window > 0;
    if (at.window_first > at.position ||
        (is_known && at.window_first != home_->recent.FirstOf(at.position))) {
      return file_.Damaged(Format("it has another window before {} tokens", at.position));
    }
  }
  return {};
}

// REQUIRES: ReadTokens() names the position.
uint32_t SequenceFile::IndexOf(uint32_t position) const {
  const auto found = std::ranges::find(header_.checkpoints, position, &SavedCheckpoint::position);
  CHECK(found != header_.checkpoints.end());
  return static_cast<uint32_t>(found - header_.checkpoints.begin());
}

Status SequenceFile::ReadWindow(uint32_t index, const KvTimeline& window, const KvCache& kv) const {
  uint64_t offset = header_.window_begin(index);
  const uint32_t n = window.length() - window.begin();
  for (uint32_t l = 0; l < kv.layers(); ++l) {
    if (kv.shape().layers[l].shares_cells || !kv.is_recent(l)) continue;
    for (const KvCache::KvTensor part : PartsOf(kv, l)) {
      const size_t row = kv.cell_bytes(l, part);
      TRY(const std::string bytes, file_.Read(offset, row * n));
      for (uint32_t i = 0; i < n;) {
        const uint32_t run = NeighboursFrom(window, window.begin() + i, window.length());
        TRY_STATUS(kv.Write(l, part, window.cell(window.begin() + i),
                            std::as_bytes(std::span(bytes).subspan(i * row, run * row))));
        i += run;
      }
      offset += bytes.size();
    }
  }
  return {};
}

Status SequenceFile::ReadState(uint64_t offset, std::span<float> state) const {
  TRY(const std::string bytes, file_.Read(offset, header_.state_bytes));
  std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(state.data()));
  return {};
}

// Reads the cells of every layer that stores them, keys before values. Returns the offset behind.
Result<uint64_t> SequenceFile::ReadCells(uint64_t offset, const Timeline& timeline, uint32_t first,
                                         uint32_t n, const KvCache& kv) const {
  for (uint32_t l = 0; l < kv.layers(); ++l) {
    if (kv.shape().layers[l].shares_cells) continue;
    TRY_STATUS(ForEachPool(
        timeline, first, first + n, l, kv, [&](KvCache::KvTensor part, uint32_t cell) -> Status {
          TRY(const std::string bytes, file_.Read(offset, kv.cell_bytes(l, part)));
          offset += bytes.size();
          return kv.Write(l, part, cell, std::as_bytes(std::span(bytes)));
        }));
    const bool has_recent = header_.recent_bytes > 0 && kv.shape().layers[l].window > 0;
    if (has_recent && first < header_.recent_first) continue;
    const KvTimeline& cells = CellsOf(timeline, kv, l);
    const uint32_t unheld = std::min(n, cells.begin() - std::min(first, cells.begin()));
    for (const KvCache::KvTensor part : PartsOf(kv, l)) {
      const size_t row = kv.cell_bytes(l, part);
      TRY(const std::string bytes, file_.Read(offset, row * n));
      for (uint32_t i = unheld; i < n;) {
        const uint32_t run = NeighboursFrom(cells, first + i, first + n);
        TRY_STATUS(kv.Write(l, part, cells.cell(first + i),
                            std::as_bytes(std::span(bytes).subspan(i * row, run * row))));
        i += run;
      }
      offset += bytes.size();
    }
  }
  return offset;
}

Status SequenceFile::ReadInto(const Timeline& timeline, const SequenceValues& values) const {
  uint64_t offset = header_.cells_begin();
  for (uint32_t first = 0; first < header_.text.n_tokens; first += header_.block) {
    const uint32_t n = std::min(header_.block, header_.text.n_tokens - first);
    TRY(offset, ReadCells(offset, timeline, first, n, values.kv));
  }
  for (const KvTimeline& kept : timeline.recent.kept)
    TRY_STATUS(ReadWindow(IndexOf(kept.length()), kept, values.kv));
  if (header_.state_bytes == 0 || header_.text.n_tokens == 0) return {};
  for (const Checkpoint& passed : timeline.passed) {
    TRY_STATUS(ReadState(header_.checkpoint_begin(IndexOf(passed.position)),
                         values.states.all(passed.state)));
  }
  return ReadState(header_.state_begin(), values.states.all(*timeline.next));
}

}  // namespace moestro
