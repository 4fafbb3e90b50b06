// SPDX-License-Identifier: MIT
#include "hosted/hosted_file.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/binary_file.h"
#include "base/block_hash.h"
#include "memory/kv_choices.h"
#include "model/weights_id.h"
#include "store/open_files.h"

namespace moestro {
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
