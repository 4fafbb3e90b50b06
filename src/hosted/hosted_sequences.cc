// SPDX-License-Identifier: MIT
#include "hosted/hosted_sequences.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/binary_file.h"
#include "base/hash.h"
#include "memory/sequence_text.h"
#include "model/weights_id.h"
#include "store/open_files.h"

namespace moestro {

HostedSequences::HostedSequences(llama_memory_t memory, bool has_states, uint32_t n_blocks,
                                 uint32_t n_places)
    : memory_(memory), has_states_(has_states), table_(n_blocks, has_states ? n_places : 0) {
  if (has_states_) {
    is_written_.assign(n_places, 0);
  } else {
    for (uint32_t i = n_places; i > 0; --i) {
      free_places_.push_back(static_cast<llama_seq_id>(i - 1));
    }
  }
}

// A fork for which no place is left has its tokens alone: Reach() returns 0, and the fork is
// computed anew from there.
SequenceId HostedSequences::Fork(SequenceId id) {
  const SequenceId fork = table_.Fork(id);
  const auto from = places_.find(id);
  if (from != places_.end() && Take(fork)) {
    llama_memory_seq_cp(memory_, from->second, places_.at(fork), -1, -1);
  }
  return fork;
}

void HostedSequences::Drop(SequenceId id) {
  GiveBack(id);
  table_.Drop(id);
}

uint32_t HostedSequences::Reach(SequenceId id, uint32_t position) const {
  if (has_states_) return table_.Reach(id, position);
  const auto place = places_.find(id);
  if (place == places_.end()) return 0;
  // A memory that has forgotten the first positions takes any cut and computes wrong logits after a
  // deep one.
  const bool is_whole = llama_memory_seq_pos_min(memory_, place->second) <= 0;
  return is_whole || position == TokensOf(id).size() ? table_.Reach(id, position) : 0;
}

void HostedSequences::CutBack(SequenceId id, uint32_t position) {
  table_.CutBack(id, position);
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  if (llama_memory_seq_rm(memory_, place->second, static_cast<llama_pos>(position), -1)) return;
  GiveBack(id);  // libllama cannot cut this memory, so no position is left: Reach() returns 0
}

void HostedSequences::GiveBack(SequenceId id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return;
  Forget(place->second);
  free_places_.push_back(place->second);
  places_.erase(place);
}

Engine::KvRoom HostedSequences::room() const {
  Engine::KvRoom room = table_.room();
  if (!has_states_) room.places = static_cast<uint32_t>(free_places_.size());
  return room;
}

Status HostedSequences::Take(SequenceId id) {
  if (free_places_.empty()) {
    return Fail(Errc::kInvalidRequest, "no place is left for another sequence; end one");
  }
  places_[id] = free_places_.back();
  free_places_.pop_back();
  return {};
}

// The state's place goes on in a new one.
Status HostedSequences::BeginState(SequenceId id) {
  ForgetUnused();
  const Timeline& timeline = *table_.Find(id);
  const auto next = static_cast<llama_seq_id>(timeline.next->value);
  Forget(next);
  is_written_[timeline.next->value] = 1;
  if (timeline.state) {
    llama_memory_seq_cp(memory_, static_cast<llama_seq_id>(timeline.state->state.value), next, -1,
                        -1);
  }
  return {};
}

// Clears places that the table no longer uses. The table gives back places at many moments;
// libllama must drop their cells before others need them.
void HostedSequences::ForgetUnused() {
  for (uint32_t place = 0; place < is_written_.size(); ++place) {
    if (is_written_[place] == 0 || table_.states().is_used(StateSlot{place})) continue;
    Forget(static_cast<llama_seq_id>(place));
    is_written_[place] = 0;
  }
}

Status HostedSequences::Append(SequenceId id, std::span<const Token> tokens) {
  const auto before = static_cast<uint32_t>(table_.TokensOf(id).size());
  const bool had_next = table_.Find(id)->next.has_value();
  TRY_STATUS(table_.Append(id, tokens));
  if (has_states_) return had_next ? Status() : BeginState(id);
  if (places_.contains(id)) return {};
  Status taken = before == 0
                     ? Take(id)
                     : Fail(Errc::kInvalidRequest,
                            "the sequence's keys and values had no place; evaluate it again");
  if (!taken) table_.CutBack(id, before);
  return taken;
}

void HostedSequences::Undo(SequenceId id, uint32_t position) {
  if (has_states_) {
    const Timeline& timeline = *table_.Find(id);
    if (const auto& next = timeline.next) Forget(static_cast<llama_seq_id>(next->value));
    for (const Checkpoint& passed : timeline.passed) {
      Forget(static_cast<llama_seq_id>(passed.state.value));
    }
  }
  CutBack(id, position);
}

void HostedSequences::PassOn(std::span<const BatchRow> rows) {
  if (!has_states_) return;
  for (const BatchRow& row : rows) {
    const std::vector<Checkpoint>& passed = table_.Find(row.sequence)->passed;
    const auto kept = std::ranges::find(passed, row.position, &Checkpoint::position);
    if (kept == passed.end()) continue;
    const llama_seq_id to = WritesTo(row.sequence, row.position);
    Forget(to);
    is_written_[static_cast<size_t>(to)] = 1;
    llama_memory_seq_cp(memory_, static_cast<llama_seq_id>(kept->state.value), to, -1, -1);
  }
}

llama_seq_id HostedSequences::WritesTo(SequenceId id, uint32_t position) const {
  if (!has_states_) return places_.at(id);
  return static_cast<llama_seq_id>(table_.PlacesOf(id, position).to->value);
}

std::optional<llama_seq_id> HostedSequences::HeldIn(SequenceId id) const {
  if (has_states_) {
    const std::optional<Checkpoint>& state = table_.Find(id)->state;
    return state ? std::optional(static_cast<llama_seq_id>(state->state.value)) : std::nullopt;
  }
  const auto place = places_.find(id);
  return place != places_.end() ? std::optional(place->second) : std::nullopt;
}

namespace {

constexpr FileFormat kHostedFormat{.magic = "MOEHOSTS",
                                   .version = 1,
                                   .oldest = 1,
                                   .header_bytes = 48,
                                   .what = "a saved sequence of the hosted engine",
                                   .origin = "save one with 'moestro run --session'",
                                   .remedy = "start a new one"};

struct HostedHeader {
  SequenceText text;
  uint64_t state_bytes = 0;
};

Result<HostedHeader> ReadHeaderOf(const InputFile& file, const TextHome& home) {
  TRY(const std::string bytes, file.ReadHeader());
  Decoder in(bytes);
  HostedHeader header;
  SequenceText& text = header.text;
  text.begin = kHostedFormat.header_bytes;
  text.model = in.Take<uint64_t>();
  text.weights = in.Take<uint64_t>();
  text.n_tokens = in.Take<uint32_t>();
  text.notes_bytes = in.Take<uint32_t>();
  text.choices_bytes = in.Take<uint32_t>();
  header.state_bytes = in.Take<uint64_t>();
  TRY_STATUS(text.CheckModel(file, home));
  TRY_STATUS(text.CheckSizes(file, home));
  const uint64_t rest = file.size() - std::min<uint64_t>(file.size(), text.end());
  if (rest < kChecksumBytes || rest - kChecksumBytes != header.state_bytes) {
    return file.CutShort("its header");
  }
  TRY_STATUS(text.CheckChoices(file, home));
  return header;
}

}  // namespace

// Hashes dense tensors whole, as they lie in memory, and some blocks at equal distances of every
// matrix of experts.
Result<uint64_t> HostedOrigin::Weights(uint64_t fingerprint) {
  if (weights_) return *weights_;
  uint64_t sum = 0;
  for (const MappedTensor& tensor : model_.graph().dense) {
    sum += DenseSum(tensor.info->name, 0, {tensor.data, tensor.info->extent.length});
  }
  size_t matrices = 0;
  for (const ExpertGroup& group : model_.graph().groups) matrices += group.matrices.size();
  const size_t each = std::max<size_t>(1, kMostSamples / std::max<size_t>(matrices, 1));
  TRY(const ExtentReader reader, ExtentReader::Open(file_.paths()));
  uint64_t seed = 1;
  for (const ExpertGroup& group : model_.graph().groups) {
    for (const MappedTensor& matrix : group.matrices) {
      const Extent& whole = matrix.info->extent;
      const uint64_t blocks = std::max<uint64_t>(whole.length / kSampleBytes, 1);
      const uint64_t n = std::min<uint64_t>(each, blocks);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t at = i * blocks / n * kSampleBytes;
        TRY(const ExtentBytes block,
            reader.Read({.file = whole.file,
                         .offset = whole.offset + at,
                         .length = std::min(kSampleBytes, whole.length - at)}));
        sum += HashBlock(block.bytes, ++seed);
      }
    }
  }
  weights_ = WeightsId(fingerprint, sum);
  return *weights_;
}

Result<TextHome> HostedOrigin::Home(const EngineFacts& facts, KvType kv_type) {
  TRY(const uint64_t weights, Weights(facts.id.fingerprint));
  KvChoices choices;
  choices.Add("engine", "hosted");
  if (kv_type != KvType::kF16) choices.Add("--kv-type", std::string(NameOf(kv_type)));
  choices.Add("rows", Format("of many at once, {} of a prompt", facts.chunk));
  choices.Add(kKernelsChoice, facts.kernels);
  return TextHome{
      .origin = {.model = facts.id.fingerprint, .weights = weights, .choices = choices.text()},
      .n_ctx = facts.n_ctx,
      .n_vocab = facts.n_vocab};
}

Status WriteHosted(const OutputPath& path, const TextHome& home, std::span<const Token> tokens,
                   const std::string& notes, std::span<const uint8_t> state) {
  TRY_STATUS(CheckNotes(notes));
  TRY(BinaryWriter out, BinaryWriter::Create(path, FileReaders::kOwner));
  std::string header = BeginHeader(kHostedFormat);
  AppendNumber(header, home.origin.model);
  AppendNumber(header, home.origin.weights);
  AppendNumber(header, static_cast<uint32_t>(tokens.size()));
  AppendNumber(header, static_cast<uint32_t>(notes.size()));
  AppendNumber(header, static_cast<uint32_t>(home.origin.choices.size()));
  AppendNumber(header, uint64_t{state.size()});
  TRY_STATUS(out.Add(header));
  TRY_STATUS(AddText(out, home, notes, tokens));
  TRY_STATUS(out.Add({reinterpret_cast<const char*>(state.data()), state.size()}));
  return out.Finish();
}

Result<SavedTokens> PeekHosted(const std::string& path, const TextHome& home) {
  TRY(const InputFile file, InputFile::Open(path, kHostedFormat));
  TRY(const HostedHeader header, ReadHeaderOf(file, home));
  return header.text.Read(file, home);
}

Result<HostedText> ReadHosted(const std::string& path, const TextHome& home) {
  TRY(const InputFile file, InputFile::Open(path, kHostedFormat));
  TRY(const HostedHeader header, ReadHeaderOf(file, home));
  TRY_STATUS(file.CheckSum());
  TRY_STATUS(header.text.WarnOfKernels(file, home));
  HostedText read;
  TRY(read.text, header.text.Read(file, home));
  TRY(const std::string bytes, file.Read(header.text.end(), header.state_bytes));
  read.state.assign(bytes.begin(), bytes.end());
  return read;
}

}  // namespace moestro
