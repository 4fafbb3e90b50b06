// SPDX-License-Identifier: MIT
// Any bytes as what a Hugging Face folder has: the first byte picks which file. Tensors that are
// accepted lie in their file, one behind the other; vocabularies have what a GGUF takes.
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "offline/convert/safetensors.h"
#include "offline/convert/switch_keys.h"
#include "offline/convert/unigram.h"
#include "tests/fuzz/memory_file_testing.h"

namespace moestro {
namespace {

template <class T>
bool IsTaken(const Result<T>& result) {
  if (!result) CHECK(!result.error().message.contains('\n'));
  return result.has_value();
}

void TakeSafetensors(std::string_view file) {
  const auto length =
      SafetensorsHeaderBytes(file.substr(0, kSafetensorsPrefix), file.size(), "file");
  if (!IsTaken(length)) return;
  const auto tensors =
      ParseSafetensors(file.substr(kSafetensorsPrefix, *length), file.size(), "file");
  if (!IsTaken(tensors)) return;
  uint64_t next = kSafetensorsPrefix + *length;
  for (const SafeTensor& tensor : *tensors) {
    CHECK(tensor.offset == next && tensor.bytes > 0);
    next += tensor.bytes;
    uint64_t bytes = ggml_type_size(tensor.type);
    for (const int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
    CHECK(bytes == tensor.bytes);
  }
  CHECK(next == file.size());
}

void TakeVocab(const Result<UnigramVocab>& vocab) {
  if (!IsTaken(vocab)) return;
  CHECK(!vocab->pieces.empty() && vocab->pieces.size() <= kMostPieces);
  CHECK(CheckUnigram(*vocab, "file").has_value());
}

void TakeConfig(const Json& json) {
  const auto config = ReadSwitchConfig(json, "file");
  if (!IsTaken(config)) return;
  CHECK(config->encoder_layers > 0 && config->decoder_layers > 0 && config->experts > 0);
  CHECK(config->start_token < config->vocab && config->eos_token < config->vocab);
  CHECK(!config->is_sparse(SwitchStack::kEncoder, 0) || config->encoder_step == 1);
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(moestro::AsText(data + 1, size - 1));
  switch (data[0] % 4) {
    case 0:
      moestro::TakeSafetensors(text);
      return 0;
    case 1:
      moestro::TakeVocab(moestro::ParseSentencePiece(text, "file"));
      return 0;
    default:
      break;
  }
  const auto json = moestro::Json::Parse(text, 10000);
  if (!json) return 0;
  if (data[0] % 4 == 2) {
    moestro::TakeVocab(moestro::ParseTokenizerJson(*json, "file"));
  } else {
    moestro::TakeConfig(*json);
  }
  return 0;
}
