// SPDX-License-Identifier: MIT
#include "offline/convert/convert.h"

#include <ggml-cpp.h>
#include <gguf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/text.h"
#include "model/gguf_file.h"
#include "model/tensor_names.h"
#include "tests/support/file_size_limit_testing.h"
#include "tests/support/switch_folder_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class ConvertTest : public ::testing::Test {
 protected:
  std::string source() const { return folder_.File("model"); }
  std::string path() const { return folder_.File("out.gguf"); }
  Result<ConvertReport> Convert(ggml_type type = GGML_TYPE_F32) const {
    return ConvertFolder({.folder = source(), .path = path(), .type = type, .threads = 2});
  }
  void ExpectRefused(const std::string& part, ggml_type type = GGML_TYPE_F32) const {
    const auto made = Convert(type);
    ASSERT_FALSE(made) << part;
    EXPECT_TRUE(made.error().message.contains(part)) << made.error().message;
    EXPECT_FALSE(made.error().message.contains('\n')) << made.error().message;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
  }
  // The same after a change of what the folder has.
  void ExpectConfigRefused(const std::string& from, const std::string& to,
                           const std::string& part) {
    std::string config = TinySwitchConfig({});
    const size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    config.replace(at, from.size(), to);
    std::ofstream(source() + "/config.json") << config;
    ExpectRefused(part);
  }
  void ExpectWeightsRefused(const std::function<void(std::map<std::string, HandTensor>&)>& change,
                            const std::string& part) const {
    auto tensors = TinySwitchTensors({});
    change(tensors);
    WriteWeights(source(), tensors);
    ExpectRefused(part);
  }
  TempFolder folder_;
};

// The folder's tensors that one of the file's is made of, by docs/switch-format.md.
std::vector<std::string> SourcesOf(const std::string& name, const TinySwitch& shape) {
  static const std::map<std::string, std::string> whole_tensors{
      {"token_embd.weight", "shared.weight"},
      {"output.weight", "lm_head.weight"},
      {"encoder_norm.weight", "encoder.final_layer_norm.weight"},
      {"output_norm.weight", "decoder.final_layer_norm.weight"}};
  if (const auto whole = whole_tensors.find(name); whole != whole_tensors.end())
    return {whole->second};
  const uint32_t number = LayerOfTensorName(name).value_or(0);
  const bool is_decoder = number >= shape.encoder_layers;
  const uint32_t block = is_decoder ? (number - shape.encoder_layers) / 2 : number;
  const bool is_cross = is_decoder && (number - shape.encoder_layers) % 2 == 1;
  const size_t dot = name.find('.', 4);
  const std::string part = name.substr(dot + 1, name.size() - dot - 8);
  const std::string layer = Format("{}.block.{}.layer.", is_decoder ? "decoder" : "encoder", block);
  const std::string last = layer + (is_decoder ? "2" : "1");
  const std::string attention = layer + (is_cross ? "1.EncDecAttention." : "0.SelfAttention.");
  const std::map<std::string, std::string> parts{
      {"attn_norm", layer + (is_cross ? "1" : "0") + ".layer_norm"},
      {"attn_rel_b", layer + "0.SelfAttention.relative_attention_bias"},
      {"ffn_norm", last + ".layer_norm"},
      {"ffn_up", last + ".mlp.wi"},
      {"ffn_down", last + ".mlp.wo"},
      {"ffn_gate_inp", last + ".mlp.router.classifier"}};
  if (const auto found = parts.find(part); found != parts.end()) return {found->second + ".weight"};
  if (part.starts_with("attn_")) return {attention + part.substr(5, 1) + ".weight"};
  std::vector<std::string> sources;
  for (uint32_t e = 0; e < shape.experts; ++e) {
    sources.push_back(
        Format("{}.mlp.experts.expert_{}.{}.weight", last, e, part == "ffn_up_exps" ? "wi" : "wo"));
  }
  return sources;
}

bool IsAlwaysFloat(const std::string& name) {
  return name.contains("norm") || name.contains("rel_b") || name.contains("gate_inp");
}

// Every tensor of the file is what ggml makes of the folder's, and nothing is left over.
void ExpectTensors(const std::string& path, const TinySwitch& shape, ggml_type type) {
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  const std::string bytes = ReadAll(path);
  const auto tensors = TinySwitchTensors(shape);
  std::set<std::string> used;
  for (const TensorInfo& tensor : file->tensors()) {
    const bool is_embedding = tensor.name == "token_embd.weight" || tensor.name == "output.weight";
    const ggml_type wanted = IsAlwaysFloat(tensor.name)               ? GGML_TYPE_F32
                             : is_embedding && type == GGML_TYPE_Q4_0 ? GGML_TYPE_Q8_0
                                                                      : type;
    EXPECT_EQ(tensor.type, wanted) << tensor.name;
    EXPECT_EQ(tensor.extent.offset % 4096, 0U) << tensor.name;
    std::string expected;
    for (const std::string& source : SourcesOf(tensor.name, shape)) {
      const auto found = tensors.find(source);
      ASSERT_NE(found, tensors.end()) << tensor.name << " from " << source;
      used.insert(source);
      const std::vector<float>& values = found->second.values;
      const int64_t rows = static_cast<int64_t>(values.size()) / tensor.ne[0];
      std::string part(ggml_row_size(wanted, tensor.ne[0]) * static_cast<size_t>(rows), '\0');
      ggml_quantize_chunk(wanted, values.data(), part.data(), 0, rows, tensor.ne[0], nullptr);
      expected += part;
    }
    EXPECT_TRUE(bytes.substr(tensor.extent.offset, tensor.extent.length) == expected)
        << tensor.name;
  }
  EXPECT_EQ(used.size(), tensors.size());
}

using Form = std::tuple<ggml_type, ggml_type, bool, uint32_t>;  // source, file, tied, shards
class ConvertFormTest : public ConvertTest, public ::testing::WithParamInterface<Form> {};

TEST_P(ConvertFormTest, EveryTensorIsTheFolders) {
  const auto& [source_type, type, is_tied, shards] = GetParam();
  const TinySwitch shape{.is_tied = is_tied, .type = source_type, .shards = shards};
  WriteTinySwitch(source(), shape);
  const auto made = Convert(type);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->bytes, std::filesystem::file_size(path()));
  EXPECT_EQ(made->sparse_layers, 3U);
  ExpectTensors(path(), shape, type);
}

INSTANTIATE_TEST_SUITE_P(Forms, ConvertFormTest,
                         ::testing::Values(Form{GGML_TYPE_F32, GGML_TYPE_F32, true, 1},
                                           Form{GGML_TYPE_F32, GGML_TYPE_Q8_0, false, 3},
                                           Form{GGML_TYPE_F32, GGML_TYPE_Q4_0, true, 2},
                                           Form{GGML_TYPE_F16, GGML_TYPE_F16, false, 1},
                                           Form{GGML_TYPE_F16, GGML_TYPE_Q4_0, false, 1},
                                           Form{GGML_TYPE_BF16, GGML_TYPE_F32, false, 2},
                                           Form{GGML_TYPE_BF16, GGML_TYPE_BF16, true, 1},
                                           Form{GGML_TYPE_BF16, GGML_TYPE_Q8_0, true, 40}));

TEST_F(ConvertTest, KeysAreTheConfigurations) {
  WriteTinySwitch(source(), {});
  ASSERT_TRUE(Convert(GGML_TYPE_Q8_0));
  const auto file = GgufFile::Open(path());
  ASSERT_TRUE(file);
  EXPECT_EQ(file->FindString("general.architecture").value(), "switch");
  EXPECT_EQ(file->FindString("general.name").value(), "model");
  const std::vector<std::pair<std::string, uint64_t>> numbers{
      {"general.file_type", 7},
      {"switch.block_count", 2},
      {"switch.decoder_block_count", 3},
      {"switch.embedding_length", 64},
      {"switch.feed_forward_length", 96},
      {"switch.expert_feed_forward_length", 96},
      {"switch.attention.head_count", 3},
      {"switch.attention.key_length", 32},
      {"switch.attention.value_length", 32},
      {"switch.attention.relative_buckets_count", 32},
      {"switch.attention.relative_max_distance", 128},
      {"switch.expert_count", 3},
      {"switch.expert_used_count", 1},
      {"switch.expert_capacity", 64},
      {"switch.encoder_sparse_step", 1},
      {"switch.decoder_sparse_step", 2},
      {"switch.decoder_start_token_id", 0},
      {"switch.context_length", 512},
      {"tokenizer.ggml.eos_token_id", 1},
      {"tokenizer.ggml.padding_token_id", 0},
      {"tokenizer.ggml.unknown_token_id", 2}};
  for (const auto& [key, value] : numbers) EXPECT_EQ(file->FindUint(key).value(), value) << key;
  EXPECT_FLOAT_EQ(
      static_cast<float>(*file->FindFloat("switch.attention.layer_norm_rms_epsilon").value()),
      1e-6F);
  EXPECT_EQ(file->FindString("tokenizer.ggml.model").value(), "t5");
  EXPECT_EQ(file->FindArrayLength("tokenizer.ggml.tokens").value(), 160U);
  EXPECT_FALSE(*file->FindBool("tokenizer.ggml.add_bos_token").value());
  EXPECT_TRUE(*file->FindBool("tokenizer.ggml.add_eos_token").value());
}

TEST_F(ConvertTest, StepsComeFromCountsWhereTheyAreNotSaid) {
  std::string config = TinySwitchConfig({});
  WriteTinySwitch(source(), {.encoder_layers = 4, .encoder_step = 2, .decoder_step = 3});
  config = R"({"model_type":"switch_transformers","d_model":64,"d_ff":96,"d_kv":32,"num_heads":3,)"
           R"("num_layers":4,"num_decoder_layers":3,"num_sparse_encoder_layers":2,)"
           R"("num_sparse_decoder_layers":0,"num_experts":3,"vocab_size":160})";
  std::ofstream(source() + "/config.json") << config;
  const auto made = Convert();
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->sparse_layers, 3U);  // 1 and 3 of the encoder, 1 of the decoder
}

// Strings of the key, as gguf.h reads them.
std::vector<std::string> Tokens(const std::string& path) {
  const gguf_context_ptr gguf{
      gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr})};
  const int64_t key = gguf_find_key(gguf.get(), "tokenizer.ggml.tokens");
  std::vector<std::string> tokens;
  for (size_t i = 0; i < gguf_get_arr_n(gguf.get(), key); ++i) {
    tokens.emplace_back(gguf_get_arr_str(gguf.get(), key, i));
  }
  return tokens;
}

TEST_F(ConvertTest, SentinelsFallAndTheRestIsUnused) {
  WriteTinySwitch(source(), {});
  ASSERT_TRUE(Convert());
  const std::vector<std::string> tokens = Tokens(path());
  EXPECT_EQ(tokens[29], "z");
  EXPECT_EQ(tokens[30], "<extra_id_99>");
  EXPECT_EQ(tokens[129], "<extra_id_0>");
  EXPECT_EQ(tokens[130], "[PAD130]");
  std::ofstream(source() + "/tokenizer_config.json") << R"({"extra_ids":2})";
  std::filesystem::remove(path());
  ASSERT_TRUE(Convert());
  EXPECT_EQ(Tokens(path())[31], "<extra_id_0>");
  EXPECT_EQ(Tokens(path())[32], "[PAD32]");
}

// Folders that transformers wrote; both have one vocabulary, in two kinds of file.
TEST_F(ConvertTest, FoldersOfTransformers) {
  const std::string goldens = MOESTRO_SOURCE_DIR "/tests/goldens/switch/";
  std::vector<std::vector<std::string>> tokens;
  for (const char* name : {"tied", "untied"}) {
    const std::string made = folder_.File(Format("{}.gguf", name));
    const auto report = ConvertFolder(
        {.folder = goldens + name, .path = made, .type = GGML_TYPE_F32, .threads = 2});
    ASSERT_TRUE(report) << report.error().message;
    tokens.push_back(Tokens(made));
    const auto file = GgufFile::Open(made);
    ASSERT_TRUE(file);
    EXPECT_EQ(file->Find("output.weight") != nullptr, std::string(name) == "untied");
    EXPECT_NE(file->Find("blk.1.ffn_up_exps.weight"), nullptr);
    const std::string first = std::string(name) == "tied" ? "blk.5" : "blk.4";  // of the decoder
    EXPECT_NE(file->Find(first + ".ffn_up.weight"), nullptr);
  }
  EXPECT_EQ(tokens[0].size(), 320U);
  EXPECT_EQ(tokens[0], tokens[1]);
}

TEST_F(ConvertTest, CopiesOfTheEmbeddingMustBeEqual) {
  WriteTinySwitch(source(), {});
  auto tensors = TinySwitchTensors({});
  for (const char* copy :
       {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}) {
    tensors[copy] = tensors["shared.weight"];
    tensors[copy].name = copy;
  }
  WriteWeights(source(), tensors);
  ASSERT_TRUE(Convert());
  ExpectTensors(path(), {}, GGML_TYPE_F32);
  std::filesystem::remove(path());
  tensors["lm_head.weight"].values.back() += 1;
  WriteWeights(source(), tensors);
  ExpectRefused("'lm_head.weight' differ");
  tensors.erase("lm_head.weight");
  tensors.erase("shared.weight");
  WriteWeights(source(), tensors);
  ASSERT_TRUE(Convert());
}

TEST_F(ConvertTest, OtherConfigurationsAreRefused) {
  WriteTinySwitch(source(), {});
  ExpectConfigRefused("\"switch_transformers\"", "\"t5\"", "model_type 't5'");
  ExpectConfigRefused("\"model_type\"", "\"x\"", "model_type ''");
  ExpectConfigRefused("\"d_model\"", "\"d_modell\"", "has no 'd_model'");
  ExpectConfigRefused("\"d_ff\": 96", "\"d_ff\": -1", "has 'd_ff': -1");
  ExpectConfigRefused("\"d_ff\": 96", "\"d_ff\": \"96\"", "has 'd_ff': \"96\"");
  ExpectConfigRefused("\"d_ff\": 96", "\"d_ff\": 1e300", "has 'd_ff'");
  ExpectConfigRefused("\"d_ff\": 96", "\"d_ff\": 95", "has the shape");
  ExpectConfigRefused("\"num_experts\": 3", "\"num_experts\": 4", "wants 4, 64");
  ExpectConfigRefused("\"num_experts\": 3", "\"num_experts\": 2", "has the shape 3, 64");
  ExpectConfigRefused("\"num_layers\": 2", "\"num_layers\": 1", "has no place");
  ExpectConfigRefused("\"encoder_sparse_step\": 1", "\"encoder_sparse_step\": 2", "has no tensor");
  ExpectConfigRefused("\"encoder_sparse_step\"", "\"x\"", "no 'num_sparse_encoder_layers'");
  ExpectConfigRefused("{", "{\"router_bias\": true,", "router_bias");
  ExpectConfigRefused("{", "{\"is_gated_act\": true,", "gated");
  ExpectConfigRefused("{", "{\"dense_act_fn\": \"gelu\",", "'gelu'");
  ExpectConfigRefused("{", "{\"feed_forward_proj\": \"gated-gelu\",", "'gated-gelu'");
  ExpectConfigRefused("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false",
                      "lm_head.weight");
  ExpectConfigRefused("{", "{\"tie_word_embeddings\": 3, \"x\": {", "no JSON");
  ExpectConfigRefused("{", "{\"eos_token_id\": 160,", "no token of a vocabulary of 160");
  ExpectConfigRefused("{", "{\"eos_token_id\": 5,", "no control token");
  ExpectConfigRefused("{", "{\"layer_norm_epsilon\": 2,", "layer_norm_epsilon");
}

TEST_F(ConvertTest, OtherWeightsAreRefused) {
  WriteTinySwitch(source(), {});
  const std::string expert = "encoder.block.1.layer.1.mlp.experts.expert_2.wo.weight";
  ExpectWeightsRefused([&](auto& t) { t.erase(expert); }, "has no tensor '" + expert + "'");
  ExpectWeightsRefused([&](auto& t) { t.at(expert).shape = {96, 64}; }, "has the shape 96, 64");
  ExpectWeightsRefused([&](auto& t) { t.at(expert).values[70] = 1e9F; }, expert + "' holds 1e+09,");
  ExpectWeightsRefused([&](auto& t) { t["x"] = {"x", GGML_TYPE_F32, {1}, {1.0F}}; },
                       "'x' has no place");
}

TEST_F(ConvertTest, OtherFoldersAreRefused) {
  std::filesystem::create_directories(source());
  ExpectRefused("no config.json");
  WriteTinySwitch(source(), {});
  std::ofstream(source() + "/config.json") << "[1]";
  ExpectRefused("config.json is no JSON object");
  std::ofstream(source() + "/config.json") << TinySwitchConfig({});
  std::filesystem::remove(source() + "/model.safetensors");
  ExpectRefused("neither model.safetensors nor");
  std::ofstream(source() + "/pytorch_model.bin") << "\x80\x02";
  ExpectRefused("python3 -c \"from transformers import");
  std::filesystem::rename(source() + "/pytorch_model.bin",
                          source() + "/pytorch_model.bin.index.json");
  ExpectRefused("save it as safetensors");
}

TEST_F(ConvertTest, OtherShardsAreRefused) {
  WriteTinySwitch(source(), {.shards = 2});
  const std::string index = source() + "/model.safetensors.index.json";
  const std::string text = ReadAll(index);
  const std::string first = source() + "/model-00001-of-00002.safetensors";
  for (const char* name : {"../m.safetensors", "m.bin", ""}) {
    std::ofstream(index) << R"({"weight_map":{"shared.weight":")" << name << "\"}}";
    ExpectRefused("no file of the folder");
  }
  std::ofstream(index) << R"({"weight_map":{}})";
  ExpectRefused("no weight_map");
  std::ofstream(index) << R"({"weight_map":{"shared.weight":"m.safetensors"}})";
  ExpectRefused("m.safetensors");
  std::string other = text;
  other.replace(other.find("decoder"), 7, "dec0der");
  std::ofstream(index) << other;
  ExpectRefused("where it is not");
  std::ofstream(index) << text;
  std::filesystem::copy_file(first, source() + "/model-00002-of-00002.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  ExpectRefused("lies in two files");
  std::filesystem::resize_file(first, std::filesystem::file_size(first) - 1);
  ExpectRefused("ends at byte");
  std::filesystem::resize_file(first, 5);
  ExpectRefused("too short");
}

TEST_F(ConvertTest, OtherTokenizersAreRefused) {
  WriteTinySwitch(source(), {});
  const std::string pieces = source() + "/spiece.model";
  std::ofstream(pieces, std::ios::binary) << "no model";
  ExpectRefused("spiece.model is no SentencePiece model");
  std::ofstream(source() + "/tokenizer_config.json") << R"({"extra_ids":131})";
  std::ofstream(pieces, std::ios::binary) << SentencePieceBytes(HandPieces());
  ExpectRefused("161 pieces, the embedding 160 rows");
  std::ofstream(source() + "/tokenizer_config.json") << R"({"extra_ids":-1})";
  ExpectRefused("'extra_ids': -1");
  std::filesystem::remove(source() + "/tokenizer_config.json");
  std::vector<HandPiece> taken = HandPieces();
  taken[10].text = "[PAD140]";
  std::ofstream(pieces, std::ios::binary) << SentencePieceBytes(taken);
  ExpectRefused("'[PAD140]' is there twice");
  std::filesystem::remove(pieces);
  ExpectRefused("has no tokenizer");
  std::ofstream(source() + "/tokenizer.json") << "{}";
  ExpectRefused("has no 'model'");
}

TEST_F(ConvertTest, RowsMustBeWholeBlocks) {
  WriteTinySwitch(source(), {.ff = 80});
  ExpectRefused("blocks of 32; f16 fits", GGML_TYPE_Q8_0);
  EXPECT_TRUE(Convert(GGML_TYPE_F16));
}

TEST_F(ConvertTest, AFullDiskLeavesNothing) {
  WriteTinySwitch(source(), {});
  const FileSizeLimit limit(100 * kKiB);
  ExpectRefused("cannot write");
}

TEST_F(ConvertTest, NothingIsReplacedUnasked) {
  WriteTinySwitch(source(), {});
  ASSERT_TRUE(Convert());
  const std::string before = ReadAll(path());
  const auto again = Convert(GGML_TYPE_F16);
  ASSERT_FALSE(again);
  EXPECT_TRUE(again.error().message.contains("--force"));
  EXPECT_TRUE(ReadAll(path()) == before);
  for (const auto& entry : std::filesystem::directory_iterator(source())) {
    const std::string input = entry.path().string();
    const std::string bytes = ReadAll(input);
    const auto onto = ConvertFolder({.folder = source(),
                                     .path = input,
                                     .type = GGML_TYPE_F32,
                                     .threads = 1,
                                     .overwrite = true});
    ASSERT_FALSE(onto) << input;
    EXPECT_TRUE(onto.error().message.contains("is read here")) << onto.error().message;
    EXPECT_TRUE(ReadAll(input) == bytes) << input;
  }
  EXPECT_EQ(FindConvertType("q8_0").value(), GGML_TYPE_Q8_0);
  EXPECT_FALSE(FindConvertType("Q4_K"));
}

}  // namespace
}  // namespace moestro
