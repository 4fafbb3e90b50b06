// SPDX-License-Identifier: MIT
#include "hosted/hosted_files.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/binary_file.h"
#include "base/hash.h"
#include "model/weights_id.h"
#include "store/open_files.h"

namespace moestro {
namespace {

constexpr FileFormat kHostedFormat{.magic = "MOEHOSTS",
                                   .version = 2,
                                   .oldest = 1,
                                   .header_bytes = 48,
                                   .what = "a saved sequence of the hosted engine",
                                   .origin = "save one with 'moestro run --session'",
                                   .remedy = "start a new one"};

constexpr uint32_t kWithoutParts = 1;  // the first version
constexpr uint64_t kPartBytes = 12;    // of the list of parts: position, bytes

struct HostedHeader {
  struct Part {
    uint32_t position = 0;
    uint64_t bytes = 0;
  };
  SequenceText text;
  uint64_t whole_bytes = 0;
  std::vector<Part> parts;
  uint64_t values_begin = 0;  // of libllama's bytes: the end of the list
};

Result<uint32_t> VersionOf(const InputFile& file) {
  TRY(const std::string version, file.Read(kHostedFormat.magic.size(), sizeof(uint32_t)));
  return Decoder(version).Take<uint32_t>();
}

// Reads the list of parts behind the tokens. REQUIRES: the file is as long as its text.
Status ReadParts(const InputFile& file, HostedHeader& header) {
  uint64_t at = header.text.end();
  if (file.size() - at < sizeof(uint32_t)) return file.CutShort("its header");
  TRY(const std::string number, file.Read(at, sizeof(uint32_t)));
  const auto n = Decoder(number).Take<uint32_t>();
  at += sizeof(uint32_t);
  if (n > header.text.n_tokens) return file.Damaged("it has more parts than tokens");
  if ((file.size() - at) / kPartBytes < n) return file.CutShort("its header");
  TRY(const std::string list, file.Read(at, n * kPartBytes));
  header.values_begin = at + n * kPartBytes;
  Decoder in(list);
  uint32_t before = 0;
  for (uint32_t i = 0; i < n; ++i) {
    HostedHeader::Part part;
    part.position = in.Take<uint32_t>();
    part.bytes = in.Take<uint64_t>();
    if (part.position <= before || part.position >= header.text.n_tokens) {
      return file.Damaged("its parts' positions do not rise");
    }
    before = part.position;
    header.parts.push_back(part);
  }
  return {};
}

// Compares the lengths of libllama's bytes with the file's length, and with what the context can
// hold: a file of holes may have any length. Subtraction in turn, because a sum of hostile lengths
// may wrap.
Status CheckLengths(const InputFile& file, const TextHome& home, const HostedHeader& header) {
  uint64_t rest = file.size() - header.values_begin;
  const auto takes = [&](uint64_t bytes) {
    if (bytes > std::min(rest, home.most_bytes)) return false;
    rest -= bytes;
    return true;
  };
  bool fits = takes(kChecksumBytes) && takes(header.whole_bytes);
  for (const HostedHeader::Part& part : header.parts) fits = fits && takes(part.bytes);
  return fits && rest == 0 ? Status() : file.CutShort("its header");
}

Result<HostedHeader> ReadHeaderOf(const InputFile& file, const TextHome& home) {
  TRY(const std::string bytes, file.ReadHeader());
  TRY(const uint32_t version, VersionOf(file));
  Decoder in(bytes);
  HostedHeader header;
  SequenceText& text = header.text;
  text.begin = kHostedFormat.header_bytes;
  text.model = in.Take<uint64_t>();
  text.weights = in.Take<uint64_t>();
  text.n_tokens = in.Take<uint32_t>();
  text.notes_bytes = in.Take<uint32_t>();
  text.choices_bytes = in.Take<uint32_t>();
  header.whole_bytes = in.Take<uint64_t>();
  TRY_STATUS(text.CheckModel(file, home));
  TRY_STATUS(text.CheckSizes(file, home));
  if (file.size() < text.end()) return file.CutShort("its header");
  header.values_begin = text.end();
  if (version > kWithoutParts) TRY_STATUS(ReadParts(file, header));
  TRY_STATUS(CheckLengths(file, home, header));
  TRY_STATUS(text.CheckChoices(file, home));
  return header;
}

Result<SavedTokens> ReadText(const InputFile& file, const TextHome& home,
                             const HostedHeader& header) {
  TRY(SavedTokens text, header.text.Read(file, home));
  for (const HostedHeader::Part& part : header.parts) text.checkpoints.push_back(part.position);
  return text;
}

// Reads bytes from `at` on; `at` goes on behind them.
Result<std::string> ReadBytes(const InputFile& file, uint64_t& at, uint64_t n) {
  TRY(std::string bytes, file.Read(at, n));
  at += n;
  return bytes;
}

}  // namespace

// Hashes dense tensors whole, as the file has them (in memory they may lie as this processor's
// kernels like them), and some blocks at equal distances of every matrix of experts.
Result<uint64_t> HostedOrigin::Weights(uint64_t fingerprint) {
  if (weights_) return *weights_;
  TRY(const ExtentReader reader, ExtentReader::Open(file_.paths()));
  uint64_t sum = 0;
  for (const MappedTensor& tensor : model_.graph().dense) {
    const Extent& whole = tensor.info->extent;
    for (uint64_t at = 0; at < whole.length; at += kDenseBlock) {
      TRY(const ExtentBytes block,
          reader.Read({.file = whole.file,
                       .offset = whole.offset + at,
                       .length = std::min(kDenseBlock, whole.length - at)}));
      sum += DenseSum(tensor.info->name, at, block.bytes);
    }
  }
  size_t matrices = 0;
  for (const ExpertGroup& group : model_.graph().groups) matrices += group.matrices.size();
  const size_t each = std::max<size_t>(1, kMostSamples / std::max<size_t>(matrices, 1));
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
  // libllama writes some bytes beside each cell.
  constexpr uint64_t kBeside = 64 * kMiB;
  return TextHome{
      .origin = {.model = facts.id.fingerprint, .weights = weights, .choices = choices.text()},
      .n_ctx = facts.n_ctx,
      .n_vocab = facts.n_vocab,
      .most_bytes = 2 * model_.memory_bytes() + kBeside};
}

Status WriteHosted(const OutputPath& path, const TextHome& home, std::span<const Token> tokens,
                   const std::string& notes, const HostedMemory& memory) {
  TRY_STATUS(CheckNotes(notes));
  TRY(BinaryWriter out, BinaryWriter::Create(path, FileReaders::kOwner));
  std::string header = BeginHeader(kHostedFormat);
  AppendNumber(header, home.origin.model);
  AppendNumber(header, home.origin.weights);
  AppendNumber(header, static_cast<uint32_t>(tokens.size()));
  AppendNumber(header, static_cast<uint32_t>(notes.size()));
  AppendNumber(header, static_cast<uint32_t>(home.origin.choices.size()));
  AppendNumber(header, uint64_t{memory.whole.size()});
  TRY_STATUS(out.Add(header));
  TRY_STATUS(AddText(out, home, notes, tokens));
  std::string list;
  AppendNumber(list, static_cast<uint32_t>(memory.parts.size()));
  for (const HostedMemory::Part& part : memory.parts) {
    AppendNumber(list, part.position);
    AppendNumber(list, uint64_t{part.bytes.size()});
  }
  TRY_STATUS(out.Add(list));
  TRY_STATUS(out.Add(memory.whole));
  for (const HostedMemory::Part& part : memory.parts) TRY_STATUS(out.Add(part.bytes));
  return out.Finish();
}

Result<SavedTokens> PeekHosted(const std::string& path, const TextHome& home) {
  TRY(const InputFile file, InputFile::Open(path, kHostedFormat));
  TRY(const HostedHeader header, ReadHeaderOf(file, home));
  return ReadText(file, home, header);
}

Result<HostedText> ReadHosted(const std::string& path, const TextHome& home) {
  TRY(const InputFile file, InputFile::Open(path, kHostedFormat));
  TRY(const HostedHeader header, ReadHeaderOf(file, home));
  TRY_STATUS(file.CheckSum());
  TRY_STATUS(header.text.WarnOfKernels(file, home));
  HostedText read;
  TRY(read.text, ReadText(file, home, header));
  uint64_t at = header.values_begin;
  TRY(read.memory.whole, ReadBytes(file, at, header.whole_bytes));
  for (const HostedHeader::Part& part : header.parts) {
    TRY(std::string bytes, ReadBytes(file, at, part.bytes));
    read.memory.parts.push_back({.position = part.position, .bytes = std::move(bytes)});
  }
  return read;
}

}  // namespace moestro
