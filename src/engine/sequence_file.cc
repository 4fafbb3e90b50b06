// SPDX-License-Identifier: MIT
// Sequences as files; docs/sequence-format.md describes the bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/binary_file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/printable.h"
#include "engine/engine_impl.h"
#include "engine/kv_choices.h"

namespace moestro {
namespace {

constexpr FileFormat kSequenceFormat{.magic = "MOESEQKV",
                                     .version = 2,
                                     .oldest = 2,
                                     .header_bytes = 60,
                                     .what = "a saved sequence",
                                     .origin = "save one with 'moestro run --session'",
                                     .remedy = "start a new one"};
constexpr uint32_t kMaxNotes = 16U << 20;
constexpr uint32_t kMaxChoices = 64U << 10;
constexpr uint32_t kMaxBlock = 65536;  // positions; what a reader takes

struct SequenceHeader {
  uint32_t block = KvBlocks::kPositions;  // P
  uint64_t model_id = 0;
  uint64_t weights = 0;
  uint32_t n_layer = 0;
  uint32_t n_embd_k = 0;
  uint32_t n_embd_v = 0;
  uint32_t n_tokens = 0;
  uint32_t notes_bytes = 0;
  KvType kv_type = KvType::kF16;
  uint32_t choices_bytes = 0;

  uint64_t cell_bytes() const { return KvBytes(kv_type, n_embd_k) + KvBytes(kv_type, n_embd_v); }
  uint64_t notes_begin() const { return kSequenceFormat.header_bytes + uint64_t{choices_bytes}; }
  uint64_t tokens_begin() const { return notes_begin() + notes_bytes; }
  uint64_t cells_begin() const { return tokens_begin() + uint64_t{n_tokens} * sizeof(Token); }
  uint64_t file_bytes() const {
    return cells_begin() + uint64_t{n_layer} * n_tokens * cell_bytes() + kChecksumBytes;
  }
};

std::string Encode(const SequenceHeader& h) {
  std::string bytes = BeginHeader(kSequenceFormat);
  AppendNumber(bytes, h.block);
  AppendNumber(bytes, h.model_id);
  AppendNumber(bytes, h.weights);
  AppendNumber(bytes, h.n_layer);
  AppendNumber(bytes, h.n_embd_k);
  AppendNumber(bytes, h.n_embd_v);
  AppendNumber(bytes, h.n_tokens);
  AppendNumber(bytes, h.notes_bytes);
  AppendNumber(bytes, uint32_t{std::to_underlying(h.kv_type)});
  AppendNumber(bytes, h.choices_bytes);
  return bytes;
}

// What is written at the beginning, not yet believed.
SequenceHeader Decode(std::string_view bytes, uint32_t& type) {
  Decoder in(bytes);
  SequenceHeader h;
  h.block = in.Take<uint32_t>();
  h.model_id = in.Take<uint64_t>();
  h.weights = in.Take<uint64_t>();
  h.n_layer = in.Take<uint32_t>();
  h.n_embd_k = in.Take<uint32_t>();
  h.n_embd_v = in.Take<uint32_t>();
  h.n_tokens = in.Take<uint32_t>();
  h.notes_bytes = in.Take<uint32_t>();
  type = in.Take<uint32_t>();
  h.choices_bytes = in.Take<uint32_t>();
  return h;
}

Status CheckModel(const InputFile& file, const SequenceHeader& h, const SequenceHeader& ours) {
  if (h.model_id != ours.model_id) {
    return Fail(Errc::kInvalidRequest,
                "{} was saved with another model; name that model, or "
                "another file",
                file.path());
  }
  if (h.weights == ours.weights) return {};
  return Fail(Errc::kInvalidRequest,
              "{} was saved with other weights: a model with the same header, but not this one; "
              "name that model, or another file",
              file.path());
}

// REQUIRES: the file is as long as its header says.
Status CheckChoices(const InputFile& file, const SequenceHeader& h, const std::string& ours) {
  TRY(const std::string saved, file.Read(kSequenceFormat.header_bytes, h.choices_bytes));
  const std::string other = KvChoices::Difference(saved, ours, kKernelsChoice);
  if (!other.empty()) return Fail(Errc::kInvalidRequest, "{} {}", file.path(), other);
  return {};
}

// REQUIRES: the same, and that nothing else speaks against it.
Status WarnOfOtherKernels(const InputFile& file, const SequenceHeader& h, const std::string& ours) {
  TRY(const std::string saved, file.Read(kSequenceFormat.header_bytes, h.choices_bytes));
  if (saved == ours) return {};
  LogWarning("{} was computed by other kernels ({}; here: {}): the text goes on, rounded otherwise",
             file.path(), Printable(KvChoices::Find(saved, kKernelsChoice)),
             KvChoices::Find(ours, kKernelsChoice));
  return {};
}

struct Ours {
  SequenceHeader shape;
  std::string choices;
  uint32_t n_ctx = 0;
};

Result<SequenceHeader> ReadSequenceHeader(const InputFile& file, const Ours& here) {
  TRY(const std::string bytes, file.ReadHeader());
  uint32_t type = 0;
  SequenceHeader h = Decode(bytes, type);
  const SequenceHeader& ours = here.shape;
  TRY_STATUS(CheckModel(file, h, ours));
  if (h.n_layer != ours.n_layer || h.n_embd_k != ours.n_embd_k || h.n_embd_v != ours.n_embd_v ||
      h.block == 0 || h.block > kMaxBlock || h.notes_bytes > kMaxNotes ||
      h.choices_bytes > kMaxChoices) {
    return file.Damaged("its shape is not the model's");
  }
  if (type >= kKvTypes.size()) return file.Damaged("its keys and values have an unknown type");
  h.kv_type = static_cast<KvType>(type);
  if (h.kv_type != ours.kv_type) {
    return Fail(Errc::kInvalidRequest,
                "{} holds keys and values in {}, and this run stores them in {}; use --kv-type {}",
                file.path(), NameOf(h.kv_type), NameOf(ours.kv_type), NameOf(h.kv_type));
  }
  if (h.n_tokens > here.n_ctx) {
    return Fail(Errc::kInvalidRequest, "{} holds {} tokens, the context {}; raise --ctx",
                file.path(), h.n_tokens, here.n_ctx);
  }
  if (file.size() != h.file_bytes()) {
    return file.CutShort(Format("{} bytes", h.file_bytes()));
  }
  TRY_STATUS(CheckChoices(file, h, here.choices));
  return h;
}

SequenceHeader ShapeOf(const KvOrigin& origin, const KvCache& kv) {
  return {.model_id = origin.model,
          .weights = origin.weights,
          .n_layer = kv.layers(),
          .n_embd_k = kv.n_embd_k(),
          .n_embd_v = kv.n_embd_v(),
          .kv_type = kv.type(),
          .choices_bytes = static_cast<uint32_t>(origin.choices.size())};
}

// The saved text: notes and tokens.
Result<SavedTokens> ReadTokens(const InputFile& file, const SequenceHeader& h, uint32_t n_vocab) {
  SavedTokens saved;
  TRY(saved.notes, file.Read(h.notes_begin(), h.notes_bytes));
  TRY(const std::string bytes, file.Read(h.tokens_begin(), h.n_tokens * sizeof(Token)));
  saved.tokens.resize(h.n_tokens);
  std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(saved.tokens.data()));
  for (const Token t : saved.tokens) {
    if (t < 0 || static_cast<uint32_t>(t) >= n_vocab) {
      return file.Damaged(Format("token {} is outside the vocabulary", t));
    }
  }
  return saved;
}

// Positions from `first` on, before `end`, whose cells are neighbours.
uint32_t NeighboursFrom(const KvTimeline& cells, uint32_t first, uint32_t end) {
  uint32_t n = 1;
  while (first + n < end && cells.cell(first + n) == cells.cell(first) + n) ++n;
  return n;
}

}  // namespace

// Positions [first, first + n) of every layer: keys, then values.
Status Engine::Impl::ReadCells(const InputFile& saved, uint64_t offset, const KvTimeline& cells,
                               uint32_t first, uint32_t n) const {
  for (uint32_t l = 0; l < kv.layers(); ++l) {
    for (const KvCache::Part part : {KvCache::Part::kKeys, KvCache::Part::kValues}) {
      const size_t row = kv.cell_bytes(part);
      TRY(const std::string bytes, saved.Read(offset, row * n));
      for (uint32_t i = 0; i < n;) {
        const uint32_t run = NeighboursFrom(cells, first + i, first + n);
        TRY_STATUS(kv.Write(l, part, cells.cell(first + i),
                            std::as_bytes(std::span(bytes).subspan(i * row, run * row))));
        i += run;
      }
      offset += bytes.size();
    }
  }
  return {};
}

Status Engine::SaveSequence(const Sequence& sequence, const std::string& notes,
                            const std::string& path) {
  const Impl& m = *impl_;
  if (notes.size() > kMaxNotes) {
    return Fail(Errc::kInvalidRequest,
                "{} bytes of notes are more than a saved sequence takes ({})", notes.size(),
                kMaxNotes);
  }
  TRY(const KvOrigin origin, kv_origin());
  TRY(BinaryWriter out, BinaryWriter::Create(path, FileReaders::kOwner));
  const Timeline& timeline = *m.sequences->Find(sequence.id());
  const auto n_tokens = static_cast<uint32_t>(timeline.tokens.size());
  SequenceHeader h = ShapeOf(origin, m.kv);
  h.n_tokens = n_tokens;
  h.notes_bytes = static_cast<uint32_t>(notes.size());
  TRY_STATUS(out.Add(Encode(h)));
  TRY_STATUS(out.Add(origin.choices));
  TRY_STATUS(out.Add(notes));
  TRY_STATUS(out.Add({reinterpret_cast<const char*>(timeline.tokens.data()),
                      timeline.tokens.size() * sizeof(Token)}));
  for (uint32_t first = 0; first < n_tokens; first += KvBlocks::kPositions) {
    const uint32_t end = std::min(first + KvBlocks::kPositions, n_tokens);
    for (uint32_t l = 0; l < m.kv.layers(); ++l) {
      for (const KvCache::Part part : {KvCache::Part::kKeys, KvCache::Part::kValues}) {
        for (uint32_t p = first; p < end;) {
          const uint32_t run = NeighboursFrom(timeline.cells, p, end);
          std::string bytes(run * m.kv.cell_bytes(part), '\0');
          TRY_STATUS(
              m.kv.Read(l, part, timeline.cells.cell(p), std::as_writable_bytes(std::span(bytes))));
          TRY_STATUS(out.Add(bytes));
          p += run;
        }
      }
    }
  }
  return out.Finish();
}

Result<SavedTokens> Engine::PeekSequence(const std::string& path) {
  const Impl& m = *impl_;
  TRY(const InputFile file, InputFile::Open(path, kSequenceFormat));
  TRY(KvOrigin origin, kv_origin());
  const Ours ours{ShapeOf(origin, m.kv), std::move(origin.choices), m.n_ctx};
  TRY(const SequenceHeader h, ReadSequenceHeader(file, ours));
  return ReadTokens(file, h, m.model.spec.n_vocab);
}

Result<SavedSequence> Engine::RestoreSequence(const std::string& path) {
  Impl& m = *impl_;
  TRY(const InputFile file, InputFile::Open(path, kSequenceFormat));
  TRY(KvOrigin origin, kv_origin());
  const Ours ours{ShapeOf(origin, m.kv), std::move(origin.choices), m.n_ctx};
  TRY(const SequenceHeader h, ReadSequenceHeader(file, ours));
  TRY_STATUS(file.CheckSum());
  TRY(SavedTokens text, ReadTokens(file, h, m.model.spec.n_vocab));
  TRY_STATUS(WarnOfOtherKernels(file, h, ours.choices));
  SavedSequence saved{.sequence = NewSequence(), .notes = std::move(text.notes)};
  TRY_STATUS(m.sequences->Append(saved.sequence.id(), text.tokens));
  const KvTimeline& cells = m.sequences->Find(saved.sequence.id())->cells;
  uint64_t offset = h.cells_begin();
  for (uint32_t first = 0; first < h.n_tokens; first += h.block) {
    const uint32_t n = std::min(h.block, h.n_tokens - first);
    TRY_STATUS(m.ReadCells(file, offset, cells, first, n));
    offset += uint64_t{n} * h.n_layer * h.cell_bytes();
  }
  return saved;
}

}  // namespace moestro
