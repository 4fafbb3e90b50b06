// SPDX-License-Identifier: MIT
#include "offline/quantize.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/number.h"
#include "base/text.h"
#include "model/families/families.h"
#include "model/gguf_testing.h"
#include "model/low_copies.h"
#include "offline/synth/synth.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

// Experts of 256 x 256, so that K-quants fit.
SynthOptions Source(const TempFolder& folder, const std::string& type = "F16") {
  SynthOptions options;
  options.shape = FindShape("olmoe-1b-7b").value();
  options.shape.layers = 2;
  options.shape.experts = 4;
  options.shape.used = 2;
  options.shape.embd = 256;
  options.shape.ff = 256;
  options.shape.heads = options.shape.kv_heads = 4;
  options.shape.head_dim = 64;
  options.shape.vocab = 300;
  options.type = type;
  options.path = folder.File("model.gguf");
  return options;
}

QuantizeOptions Low(const TempFolder& folder, std::string_view types = "q2_k") {
  return {.model = folder.File("model.gguf"),
          .types = ParseLowTypes(types).value(),
          .path = folder.File("low.gguf"),
          .threads = 2};
}

// The matrix of one expert.
std::string Slice(const GgufFile& file, const Extent& extent) {
  std::ifstream in(file.paths()[extent.file], std::ios::binary);
  in.seekg(static_cast<std::streamoff>(extent.offset));
  std::string bytes(extent.length, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(in.good());
  return bytes;
}

// What a slice should hold: all of it at once by ggml.
std::string Quantised(const ExpertMatrix& from, const std::string& bytes, ggml_type type) {
  std::vector<float> values(size_t{from.n_in} * from.n_out);
  if (from.types[0] == GGML_TYPE_F32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    ggml_get_type_traits(from.types[0])
        ->to_float(bytes.data(), values.data(), static_cast<int64_t>(values.size()));
  }
  std::string low(ggml_row_size(type, from.n_in) * from.n_out, '\0');
  ggml_quantize_chunk(type, values.data(), low.data(), 0, from.n_out, from.n_in, nullptr);
  return low;
}

// Writes the low copies, opens them and compares every slice.
void ExpectRightBytes(const QuantizeOptions& options) {
  const auto written = WriteLowCopies(options);
  ASSERT_TRUE(written) << written.error().message;
  const auto model = ModelFile::Open(options.model);
  ASSERT_TRUE(model) << model.error().message;
  const auto low = OpenLowCopies(options.path.text(), *model);
  ASSERT_TRUE(low) << low.error().message;
  EXPECT_EQ(written->bytes, std::filesystem::file_size(options.path.text()));
  size_t l = 0;
  for (const LayerWeights& layer : model->weights.layers) {
    if (layer.experts.is_empty()) continue;
    for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
      const ExpertMatrix& from = layer.experts[m];
      const ExpertMatrix& to = low->layers[l][m];
      if (from.slices.empty()) continue;  // experts without a gate
      ASSERT_EQ(to.types[0], options.types[m]);
      ASSERT_EQ(to.slices.size(), from.slices.size());
      for (size_t e = 0; e < from.slices.size(); ++e) {
        EXPECT_EQ(Slice(low->gguf, to.slices[e]),
                  Quantised(from, Slice(model->gguf, from.slices[e]), to.types[0]))
            << "layer " << l << " expert " << e;
      }
    }
    ++l;
  }
  EXPECT_EQ(l, low->layers.size());
}

void ExpectError(const QuantizeOptions& options, Errc code, const std::string& words) {
  const auto failed = WriteLowCopies(options);
  ASSERT_FALSE(failed) << words;
  EXPECT_EQ(failed.error().code, code) << failed.error().message;
  EXPECT_NE(failed.error().message.find(words), std::string::npos) << failed.error().message;
}

TEST(Quantize, SlicesAreWhatGgmlMakesOfThem) {
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_K_M"}) {
    const TempFolder folder;
    SynthOptions source = Source(folder, type);
    source.shape.experts = 2;
    source.shape.used = 1;
    ASSERT_TRUE(WriteSynthetic(source));
    ExpectRightBytes(Low(folder, "gate=q2_k,up=iq3_xxs,down=q3_k"));
  }
}

TEST(Quantize, EveryTypeThatNeedsNoImportances) {
  const TempFolder folder;
  SynthOptions source = Source(folder, "F32");
  source.shape.layers = 1;
  source.shape.experts = 2;
  source.shape.used = 1;
  ASSERT_TRUE(WriteSynthetic(source));
  for (const char* type :
       {"f16", "bf16", "q8_0", "q6_k", "q5_k", "q5_0", "q5_1", "q4_k", "q4_0", "q4_1", "iq4_xs",
        "iq4_nl", "mxfp4", "iq3_s", "iq2_s", "tq1_0", "tq2_0", "q1_0", "q2_0"}) {
    QuantizeOptions options = Low(folder, type);
    options.overwrite = true;
    ExpectRightBytes(options);
  }
}

TEST(Quantize, EveryFamilyHasExpertsToQuantise) {
  for (const Family& family : Families()) {
    if (family.has_encoder) continue;  // encoder_test.cc
    const TempFolder folder;
    for (const SynthShape& shape : KnownShapes()) {
      if (shape.arch != family.name) continue;
      SynthOptions source = Source(folder);
      const SynthShape small = source.shape;
      source.shape = shape;
      source.shape.layers = 3;
      if (family.has_lone_parts) source.shape.pattern = "M*E";
      if (family.has_latent_experts) source.shape.latent = 256;
      if (family.windows.has_own_heads) source.shape.window_every = 2;
      source.shape.dense_layers = std::min(shape.dense_layers, 1U);
      source.shape.experts = 8;
      source.shape.used = 2;
      source.shape.embd = small.embd;
      source.shape.ff = 256;
      if (shape.shared_ff > 0) source.shape.shared_ff = 512;
      source.shape.groups = 0;
      source.shape.heads = source.shape.kv_heads = 4;
      if (family.latent.is_used || family.has_pooled_attention) source.shape.kv_heads = 1;
      if (family.has_pooled_attention) source.shape.head_groups = 2;
      source.shape.head_dim = family.latent.is_used ? 128 : 64;
      if (family.windows.has_own_heads) {
        source.shape.window_kv_heads = 2;
        source.shape.window_head_dim = 32;
      }
      if (shape.stream_rank > 0) source.shape.stream_rank = 32;
      if (shape.ngram_most > 0) {
        source.shape.ngram_values = small.embd / source.shape.ngram_names();
        source.shape.ngram_rows = 64;
      }
      source.shape.vocab = 300;
      const auto written = WriteSynthetic(source);
      ASSERT_TRUE(written) << written.error().message;
      ExpectRightBytes(Low(folder, "q4_0"));  // quick: EveryTypeThatNeedsNoImportances has all
      break;
    }
  }
}

TEST(Quantize, ASplitModelIsOneModel) {
  const TempFolder folder;
  SynthOptions source = Source(folder);
  source.shards = 3;
  const auto written = WriteSynthetic(source);
  ASSERT_TRUE(written) << written.error().message;
  QuantizeOptions options = Low(folder);
  options.model = written->paths.front();
  ExpectRightBytes(options);
  options.path = written->paths.back();
  options.overwrite = true;
  ExpectError(options, Errc::kIo, "is read here");
}

TEST(Quantize, ThreadsDoNotShowInTheFile) {
  const TempFolder folder;
  SynthOptions source = Source(folder);
  source.shape.layers = 1;
  source.shape.experts = 2;
  source.shape.used = 1;
  source.shape.ff = 4096;  // two pieces for each expert
  ASSERT_TRUE(WriteSynthetic(source));
  QuantizeOptions options = Low(folder);
  ASSERT_TRUE(WriteLowCopies(options));
  const std::string first = ReadAll(options.path.text());
  options.overwrite = true;
  for (const uint32_t threads : {1U, 5U}) {
    options.threads = threads;
    ASSERT_TRUE(WriteLowCopies(options));
    EXPECT_EQ(ReadAll(options.path.text()), first);
  }
}

TEST(Quantize, SlicesBeginWhereDirectReadsMayBegin) {
  const TempFolder folder;
  SynthOptions source = Source(folder);
  source.shape.ff = 1024;  // q2_K: 84 KiB for an expert, 21 blocks
  ASSERT_TRUE(WriteSynthetic(source));
  const auto report = WriteLowCopies(Low(folder));
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->slices, 2U * 4 * 3);
  EXPECT_EQ(report->aligned_slices, report->slices);
  const auto low =
      OpenLowCopies(folder.File("low.gguf"), ModelFile::Open(folder.File("model.gguf")).value());
  ASSERT_TRUE(low) << low.error().message;
  for (const LayerExperts& layer : low->layers) {
    for (const ExpertMatrix& matrix : layer.matrices) {
      for (const Extent& slice : matrix.slices) EXPECT_EQ(slice.offset % 4096, 0U);
    }
  }
}

TEST(Quantize, TheFileSaysWhereItComesFrom) {
  const TempFolder folder;
  SynthOptions source = Source(folder);
  ASSERT_TRUE(WriteSynthetic(source));
  std::vector<uint64_t> progress;
  QuantizeOptions options = Low(folder, "q2_k,down=q3_k");
  options.progress = [&](uint64_t done, uint64_t all) {
    EXPECT_LE(done, all);
    progress.push_back(done);
    if (done == all) progress.push_back(0);
  };
  const auto report = WriteLowCopies(options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(progress.back(), 0U);  // all was reached, at the end
  EXPECT_EQ(report->source_bytes, 2U * 4 * 3 * 256 * 256 * 2);
  const auto file = GgufFile::Open(options.path.text());
  ASSERT_TRUE(file) << file.error().message;
  const uint64_t fingerprint = ModelFile::Open(options.model).value().id.fingerprint;
  EXPECT_EQ(file->FindString(kLowFingerprintKey).value(), Format("{:016x}", fingerprint));
  EXPECT_EQ(file->FindString(kLowNameKey).value(), "model.gguf");
  EXPECT_EQ(file->FindString(kLowTypesKey).value(), "gate=q2_K,up=q2_K,down=q3_K");
  EXPECT_EQ(file->FindUint(kLowVersionKey).value(), 1U);
  EXPECT_EQ(file->FindString("general.architecture").value(), "olmoe");
  EXPECT_EQ(file->FindUint("olmoe.block_count").value(), 2U);
  EXPECT_EQ(file->FindUint("general.alignment").value(), 4096U);
  EXPECT_EQ(file->FindValue("tokenizer.ggml.model"), nullptr);
  EXPECT_EQ(file->FindValue("general.file_type"), nullptr);
  EXPECT_EQ(file->tensors().size(), 6U);
  EXPECT_EQ(file->tensors().front().name, "blk.0.ffn_gate_exps.weight");
}

TEST(Quantize, FusedAndSingleTensorsKeepTheirForm) {
  const TempFolder folder;
  GgufBuilder builder = SmallMoe("qwen3moe");
  builder.RemoveTensor("blk.1.ffn_gate_exps.weight").RemoveTensor("blk.1.ffn_up_exps.weight");
  builder.Tensor("blk.1.ffn_gate_up_exps.weight", GGML_TYPE_F16, {32, 128, 4});
  builder.RemoveTensor("blk.0.ffn_down_exps.weight");
  for (const char* e : {"0", "1", "2", "3"}) {
    builder.Tensor("blk.0.ffn_down." + std::string(e) + ".weight", GGML_TYPE_F16, {64, 32});
  }
  builder.Write(folder.File("model.gguf"));
  ExpectRightBytes(Low(folder, "q4_0"));
  const auto file = GgufFile::Open(folder.File("low.gguf"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_NE(file->Find("blk.1.ffn_gate_up_exps.weight"), nullptr);
  EXPECT_NE(file->Find("blk.0.ffn_down.2.weight"), nullptr);
  for (const TensorInfo& tensor : file->tensors()) EXPECT_EQ(tensor.extent.offset % 4096, 0U);
  QuantizeOptions options = Low(folder, "q4_0,up=q4_1");
  options.path = folder.File("other.gguf");
  ExpectError(options, Errc::kInvalidRequest, "blk.1.ffn_gate_up_exps.weight");
}

TEST(Quantize, TypesThatCannotBeAreRefused) {
  const TempFolder folder;
  SynthOptions source = Source(folder, "Q4_0");
  source.shape.ff = 96;
  ASSERT_TRUE(WriteSynthetic(source));
  ExpectError(Low(folder, "q2_k"), Errc::kInvalidRequest, "q4_0 fits them");
  ExpectError(Low(folder, "q2_k"), Errc::kInvalidRequest, "blk.0.ffn_down_exps.weight");
  ExpectError(Low(folder, "iq2_xxs,down=q4_0"), Errc::kInvalidRequest, "importances");
  ExpectError(Low(folder, "q4_0"), Errc::kInvalidRequest, "choose lower types");
  ExpectError(Low(folder, "q8_0"), Errc::kInvalidRequest, "choose lower types");
  EXPECT_FALSE(std::filesystem::exists(folder.File("low.gguf")));
}

TEST(Quantize, FilesThatAreInTheWayAreNamed) {
  const TempFolder folder;
  QuantizeOptions options = Low(folder);
  ExpectError(options, Errc::kIo, "model.gguf");
  ASSERT_TRUE(WriteSynthetic(Source(folder)));
  std::ofstream(options.path.text()) << "precious";
  ExpectError(options, Errc::kIo, "exists already");
  EXPECT_EQ(ReadAll(options.path.text()), "precious");
  options.overwrite = true;
  EXPECT_TRUE(WriteLowCopies(options));
  std::filesystem::create_symlink(options.model, folder.File("link.gguf"));
  options.path = folder.File("link.gguf");
  ExpectError(options, Errc::kIo, "is read here");
  options.path = folder.path().string();
  ExpectError(options, Errc::kIo, "is a folder");
  options.path = folder.File("none/low.gguf");
  ExpectError(options, Errc::kIo, "none");
  options.path = OutputPath();
  ExpectError(options, Errc::kUsage, "output");
}

TEST(Quantize, WeightsThatAreNoNumbersAreRefused) {
  const TempFolder folder;
  ASSERT_TRUE(WriteSynthetic(Source(folder, "F32")));
  const auto model = ModelFile::Open(folder.File("model.gguf"));
  const Extent& slice = model->weights.layers[1].experts[Matrix::kUp].slices[3];
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), 1e30F}) {
    std::fstream file(folder.File("model.gguf"), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(slice.offset + 400));
    file.write(reinterpret_cast<const char*>(&bad), sizeof(bad));
    file.close();
    ExpectError(Low(folder), Errc::kInvalidFile, "'blk.1.ffn_up_exps.weight' holds");
    EXPECT_FALSE(std::filesystem::exists(folder.File("low.gguf")));
  }
}

TEST(Quantize, AFailingDiskLeavesNothingBehind) {
  const TempFolder folder;
  const TempFolder out;
  ASSERT_TRUE(WriteSynthetic(Source(folder)));
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {256 * kKiB, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  QuantizeOptions options = Low(folder);
  options.path = out.File("low.gguf");
  ExpectError(options, Errc::kIo, "cannot write");
  EXPECT_TRUE(out.is_empty());
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
}

}  // namespace
}  // namespace moestro
