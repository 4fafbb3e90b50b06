// SPDX-License-Identifier: MIT
// Writes a corpus to begin from, small valid files for each target: moestro_fuzz_seeds FOLDER.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/binary_file.h"
#include "base/output_file.h"
#include "base/result.h"
#include "base/text.h"
#include "chat/templates_testing.h"
#include "hosted/hosted_files.h"
#include "hosted/hosted_sequences.h"
#include "learned/learned_tables.h"
#include "learned/machine_files.h"
#include "learned/tunings.h"
#include "model/families/families.h"
#include "model/gguf_file.h"
#include "model/gguf_testing.h"
#include "model/low_copies.h"
#include "offline/eval/eval_stats.h"
#include "offline/record/imatrix_file.h"
#include "offline/record/imatrix_sums.h"
#include "offline/record/profile.h"
#include "offline/shard_file.h"
#include "tests/support/switch_folder_testing.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

void WriteHeader(const GgufBuilder& model, const std::string& path) {
  model.Write(path);
  const auto file = GgufFile::Open(path);
  CHECK(file.has_value());
  std::filesystem::resize_file(path, file->tensors().front().extent.offset);
}

// One model per family, with and without a vocabulary.
void WriteModels(const std::string& folder) {
  for (const Family& family : Families()) {
    GgufBuilder model = SmallMoe(family.name);
    WriteHeader(model, Format("{}/ids_{}.gguf", folder, family.name));
    AddByteLevelVocabulary(model);
    WriteHeader(model, Format("{}/text_{}.gguf", folder, family.name));
  }
  WriteHeader(SmallFitted(), folder + "/fitted.gguf");
}

// The target adds the checksum itself.
void DropChecksum(const std::string& path) {
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - kChecksumBytes);
}

// An ordinary model of fewer bits, and a file that says what it was made from.
void WriteLow(const std::string& folder) {
  GgufBuilder low = SmallMoe("olmoe");
  WriteHeader(low, folder + "/ordinary.gguf");
  low.Set(kLowVersionKey, kLowVersion).Set(kLowFingerprintKey, "0123456789abcdef");
  WriteHeader(low, folder + "/low.gguf");
}

void WriteBeside(const std::string& folder) {
  const ModelId model{.name = "m.gguf", .fingerprint = 0xfedcba98, .shape = {2, 4, 2}};
  const std::string norms = folder + "/small.norms";
  CHECK(WriteNorms(norms, {.model = model,
                           .tokens = 9,
                           .norms = {.shape = model.shape, .values = std::vector<float>(8, 0.5F)}})
            .has_value());
  DropChecksum(norms);
  CHECK(WriteSweep(folder + "/sweep.json",
                   {.model = model,
                    .ram_bytes = 100,
                    .expert_bytes = 50,
                    .settings = {{.knobs = {}, .is_exact = true, .decode_tps = 2.0},
                                 {.knobs = {{.knob = "t1", .value = "0.5"}},
                                  .kl_mean = 0.01,
                                  .kl_se = 0.001,
                                  .decode_tps = 3.0}}})
            .has_value());
  CHECK(WriteLatency(folder + "/latency.json",
                     {.machine = "m",
                      .devices = {"Vulkan0", "Vulkan1"},
                      .model = {.host = {.base = 1e-6, .per_byte = 1e-10, .per_row = 1e-11},
                                .disk = {.per_byte = 1e-9},
                                .devices = {{.compute = {.per_byte = 1e-12, .error = 0.1},
                                             .copy = {.per_byte = 1e-10},
                                             .launch = 1e-5,
                                             .copy_beside = 1.5},
                                            {.compute = {.per_byte = 2e-12}}}},
                      .sources = {{"all", "measured"}}})
            .has_value());
}

void WriteImportances(const std::string& folder) {
  const std::vector<double> sums(size_t{32} * 4, 2.0);
  const std::vector<uint64_t> counts{3, 0, 1, 9};
  const ImatrixEntry entry{
      .name = "blk.0.ffn_up_exps.weight", .n_in = 32, .sums = sums, .counts = counts};
  CHECK(WriteImatrix(folder + "/small.gguf",
                     {.datasets = {"text"}, .chunk_count = 1, .chunk_size = 13}, {&entry, 1})
            .has_value());
}

void WritePolicies(const std::string& folder) {
  const PolicyTuning tuning{
      .model = {.name = "m.gguf", .fingerprint = 0xfedcba98, .shape = {6, 16, 4}},
      .sizes = {{.slots = 24,
                 .choice = {.name = "hobbit", .parameters = {{"w_lru", 0.1}, {"w_fld", 0.9}}},
                 .hit_rate = 0.5,
                 .standard_hit_rate = 0.4},
                {.slots = 48, .choice = {.name = "lru"}, .hit_rate = 1.0}}};
  CHECK(WriteTuning(folder + "/two_sizes.json", tuning).has_value());
}

Trace SmallTrace(uint32_t experts, bool has_weights, uint32_t depth, uint32_t little = 0) {
  const bool has_ahead = has_weights && depth == 1;  // so that traces without are there, too
  auto trace = Trace::Create({.model = {.name = "m", .fingerprint = 7, .shape = {3, experts, 2}},
                              .depth = depth,
                              .little = little,
                              .has_weights = has_weights,
                              .has_predicted_weights = has_ahead});
  CHECK(trace.has_value());
  const size_t rows = trace->info().predicted_rows();
  for (uint16_t t = 0; t < 8; ++t) {
    const ExpertId first{static_cast<uint16_t>(t % 4)};
    const ExpertId second{static_cast<uint16_t>(experts - 1)};
    std::vector<ExpertId> ids;
    std::vector<ExpertId> predicted;
    for (int layer = 0; layer < 3; ++layer) ids.insert(ids.end(), {first, second});
    for (size_t row = 0; row < rows; ++row) predicted.insert(predicted.end(), {second, first});
    const std::vector<float> weights(has_weights ? ids.size() : 0, 0.5F);
    const std::vector<float> ahead(has_ahead ? predicted.size() : 0, 0.5F);
    const LittlePass pass{
        .experts = ids,
        .weights = std::span(weights).first(size_t{3} * little),
        .predicted = std::span(predicted).first(rows * little),
        .predicted_weights = std::span(ahead).first(has_ahead ? rows * little : 0),
        .confidence = 0.5F};
    CHECK(trace
              ->Add({.phase = t < 3 ? Phase::kPrefill : Phase::kDecode,
                     .starts_sequence = t % 5 == 0,
                     .experts = ids,
                     .weights = weights,
                     .predicted = predicted,
                     .predicted_weights = ahead,
                     .little = little > 0 ? pass : LittlePass{}})
              .has_value());
  }
  return *std::move(trace);
}

// Whose header tells of the engine, too.
Trace MeasuredTrace() {
  const Trace plain = SmallTrace(8, true, 1);
  TraceInfo info = plain.info();
  info.pools.pools = {{.matrix_bytes = {100, 100, 120}, .slots = 3},
                      {.matrix_bytes = {100, 100, 160}, .slots = 5}};
  info.pools.pool_of.assign(size_t{3} * 8, 1);
  info.costs = MachineCosts{.compute = 0.07, .bandwidth = 2e9};
  auto trace = Trace::Create(info);
  CHECK(trace.has_value());
  for (size_t t = 0; t < plain.tokens(); ++t) CHECK(trace->Add(plain.token(t)).has_value());
  return *std::move(trace);
}

// A source, then a target; the first of three layers is an encoder's.
Trace SourceAndTarget() {
  auto trace = Trace::Create(
      {.model = {.name = "m", .shape = {.n_layer = 3, .n_expert = 8, .n_used = 1, .n_encoder = 1}},
       .depth = 1});
  CHECK(trace.has_value());
  for (uint16_t t = 0; t < 9; ++t) {
    const bool is_source = t % 5 < 3;
    const std::vector<ExpertId> ids(3, ExpertId{static_cast<uint16_t>(t % 8)});
    const std::vector<ExpertId> predicted(2, ExpertId{2});
    CHECK(trace
              ->Add({.phase = is_source ? Phase::kPrefill : Phase::kDecode,
                     .starts_sequence = t % 5 == 0,
                     .is_source = is_source,
                     .experts = ids,
                     .predicted = predicted})
              .has_value());
  }
  return *std::move(trace);
}

void WriteTraces(const std::string& folder) {
  std::ofstream(folder + "/lines.jsonl")
      << "{\"layers\":[[0,1],[2,3]]}\n{\"layers\":[[1,0],[2,15]]}";
  int n = 0;
  for (const Trace& trace :
       {SmallTrace(8, false, 0), SmallTrace(8, true, 2), SmallTrace(300, true, 1),
        SmallTrace(8, true, 1, 1), MeasuredTrace(), SourceAndTarget()}) {
    const std::string path = Format("{}/small_{}.trace", folder, n++);
    CHECK(WriteTrace(path, trace).has_value());
    DropChecksum(path);
  }
}

void WritePathTables(const std::string& folder) {
  for (const uint32_t experts : {8U, 300U}) {
    const Trace trace = SmallTrace(experts, false, 0);
    const std::string path = Format("{}/small_{}.paths", folder, experts);
    PathCounter counter({3, experts, 2});
    CountTrace(trace, trace.tokens(), counter);
    const PathFile file{.model = trace.info().model, .tokens = 8, .table = counter.Learn()};
    CHECK(WritePaths(path, file).has_value());
    DropChecksum(path);
  }
}

ImatrixRun SmallImportances() {
  ImatrixRun run{.info = {.datasets = {"text"}, .chunk_size = 13},
                 .places = {{.name = "blk.0.ffn_up_exps.weight",
                             .matrix = Matrix::kUp,
                             .layer = 0,
                             .n_experts = 4},
                            {.name = "blk.0.ffn_down_exps.weight",
                             .matrix = Matrix::kDown,
                             .layer = 0,
                             .n_experts = 4}},
                 .tokens = 13,
                 .sums = ImatrixSums({.n_experts = 4, .n_embd = 2, .n_ff = {3}})};
  run.sums.layer(0) = {.inputs = std::vector<double>(8, 2.0),
                       .products = std::vector<double>(12, 3.0),
                       .counts = {3, 0, 1, 9}};
  return run;
}

RecordedRouting SmallRouting(bool has_norms) {
  const Trace trace = SmallTrace(8, false, 0);
  RecordedRouting routing{.model = trace.info().model, .experts = PathCounter({3, 8, 2})};
  CountTrace(trace, trace.tokens(), routing.experts);
  if (!has_norms) return routing;
  routing.norms.emplace(routing.model.shape, 0, true);
  routing.norms->EndWindow();
  return routing;
}

EvalSums SmallSums(bool has_exact) {
  EvalSums sums{.blocks = {{.tokens = 3.0, .nll = 4.0}, {.tokens = 1.0, .nll = 2.0}}};
  if (has_exact) sums.kls = {0.0F, 0.5F, 0.1F, 0.0F};
  return sums;
}

// The only one of its run, of one window.
void WriteShards(const std::string& folder) {
  const auto path = [&folder](const char* name) { return Format("{}/{}.shard", folder, name); };
  ShardInfo info{.model = "m", .fingerprint = 7, .windows = 1, .settings = "ctx 13\n"};
  info.command = ShardOf::kImatrix;
  CHECK(WriteImatrixShard(path("imatrix"), info, SmallImportances()).has_value());
  info.command = ShardOf::kEval;
  CHECK(WriteShard(path("eval"), info, EncodeSums(SmallSums(false))).has_value());
  CHECK(WriteShard(path("against"), info, EncodeSums(SmallSums(true))).has_value());
  info.command = ShardOf::kProfile;
  CHECK(WriteProfileShard(path("profile"), info, SmallRouting(false)).has_value());
  CHECK(WriteProfileShard(path("norms"), info, SmallRouting(true)).has_value());
  info.command = ShardOf::kTrace;
  const Trace trace = MeasuredTrace();
  auto file = BeginShard(path("trace"), info, TraceBytes(trace.info(), trace.tokens()));
  CHECK(file.has_value());
  auto writer = TraceWriter::Create(*std::move(file), trace.info(), trace.tokens());
  CHECK(writer.has_value());
  for (size_t t = 0; t < trace.tokens(); ++t) CHECK(writer->Add(trace.token(t)).has_value());
  CHECK(writer->Finish().has_value());
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".shard") DropChecksum(entry.path());  // others: fuzzing's own
  }
}

// A digit says the kind (api_fuzz.cc), the rest is the body.
void WriteRequests(const std::string& folder) {
  std::ofstream(folder + "/chat.json")
      << R"(0{"model":"m","messages":[{"role":"system","content":"s"},)"
         R"({"role":"user","content":[{"type":"text","text":"\u00e4"}]},)"
         R"({"role":"assistant","content":null,"reasoning_content":"t","tool_calls":[)"
         R"({"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},)"
         R"({"role":"tool","tool_call_id":"c","content":"1"}],"tools":[{"type":"function",)"
         R"("function":{"name":"f","description":"d","parameters":{"type":"object"}}}],)"
         R"("tool_choice":{"type":"function","function":{"name":"f"}},"stop":["a","b"],)"
         R"("response_format":{"type":"json_schema","json_schema":{"schema":{}}},"stream":true,)"
         R"("stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":2,"seed":-1,)"
         R"("logit_bias":{"5":-1.5},"chat_template_kwargs":{"a":1},"reasoning_effort":"low"})";
  std::ofstream(folder + "/completion.json")
      << R"(1{"prompt":["a",[1,2]],"echo":true,"logprobs":2,"suffix":"z","max_tokens":5,)"
         R"("temperature":0.5,"mirostat":2,"grammar":"root ::= [a]"})";
  std::ofstream(folder + "/responses.json")
      << R"(2{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},)"
         R"({"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"t"}]},)"
         R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"},)"
         R"({"type":"function_call_output","call_id":"c","output":"1"}],"instructions":"i",)"
         R"("tools":[{"type":"function","name":"f","parameters":{}}],"stream":true,)"
         R"("text":{"format":{"type":"json_object"}},"reasoning":{"effort":"none"}})";
  std::ofstream(folder + "/messages.json")
      << R"(3{"max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[)"
         R"({"role":"user","content":"a"},{"role":"assistant","content":[)"
         R"({"type":"thinking","thinking":"t"},{"type":"tool_use","id":"u","name":"f",)"
         R"("input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"u",)"
         R"("content":[{"type":"text","text":"1"}]}]}],"tools":[{"name":"f","input_schema":{}}],)"
         R"("tool_choice":{"type":"any","disable_parallel_tool_use":true},)"
         R"("thinking":{"type":"enabled"},"stop_sequences":["x"]})";
  std::ofstream(folder + "/tokenize.json") << R"(4{"content":"a","with_pieces":true})";
  std::ofstream(folder + "/detokenize.json") << R"(5{"tokens":[1,2,99]})";
}

// The first byte picks the style: answer_fuzz.cc.
void WriteAnswers(const std::string& folder) {
  constexpr std::string_view kAnswers[] = {
      "<think>x</think>\n<tool_call>{\"name\": \"a\", \"arguments\": {\"b\": [1]}}</tool_call>",
      "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {}}, {\"name\": \"a\"}]",
      "[TOOL_CALLS]a[ARGS]{\"b\": 1}",
      "{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"a\", \"parameters\": {}}",
      "<tool_call>\n<function=a>\n<parameter=t>\n1\n</parameter>\n</function>\n</tool_call>",
      "<tool_call>a\n<arg_key>t</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>a\n```json\n{}\n```"
      "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
      "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.a<|message|>{}",
      "<think>x</think><minimax:tool_call>\n<invoke name=\"a\">\n<parameter "
      "name=\"t\">1</parameter>\n"
      "</invoke>\n</minimax:tool_call>",
      "<tool_call>a<arg_key>t</arg_key><arg_value>1</arg_value></tool_call>",
      "<think>x</think><answer>\n<tool_calls>[{\"name\": \"a\", \"arguments\": "
      "{}}]</tool_calls></answer>",
      "<response>\nx\n</response>\n<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>"};
  char style = '0';  // its remainder of 12 is 0
  for (const std::string_view answer : kAnswers) {
    std::ofstream(Format("{}/{}.txt", folder, style)) << style << answer;
    ++style;
  }
}

void WriteTemplates(const std::string& folder) {
  int n = 0;
  for (const std::string_view text :
       {kTaggedTemplate, kListTemplate, kBareTemplate, kParameterTemplate, kKeyValueTemplate,
        kFencedTemplate, kChannelTemplate}) {
    std::ofstream(Format("{}/{}.jinja", folder, n++)) << text;
  }
}

// The first byte picks the reader: hub_fuzz.cc.
void WriteHubTexts(const std::string& folder) {
  const std::string commit(40, 'a');
  const std::string sha(64, 'b');
  std::ofstream(folder + "/tree.json")
      << R"(0[{"type":"directory","path":"a","size":0},{"type":"file","path":"a/m-Q4_0.gguf",)"
         R"("size":9,"oid":")" +
             commit + R"(","lfs":{"oid":")" + sha +
             R"(","size":99}},)"
             R"({"type":"file","path":"m-BF16-00001-of-00002.gguf","size":1}])";
  std::ofstream(folder + "/state.json")
      << R"(1{"format":1,"repo":"o/r","commit":")" + commit + R"(","file":"m.gguf","etag":")" +
             sha + R"(","size":99,"content_etag":"\"x\"","done":[[0,9],[20,99]]})";
  std::ofstream(folder + "/name.txt") << "2hf:owner/repo:Q4_K_M@main";
  std::ofstream(folder + "/file.txt") << "2hf:owner/repo/a/b.gguf@v1";
  std::ofstream(folder + "/page.txt") << "2https://hub.test/o/r/blob/main/a%20b.gguf?x=1";
  std::ofstream(folder + "/range.txt") << "3bytes 0-9/99";
  std::ofstream(folder + "/link.txt") << "3<https://hub.test/x>; rel=\"next\"";
}

// The first byte picks the reader: convert_fuzz.cc.
void WriteHubFolderFiles(const std::string& folder) {
  const std::string weights = folder + "/weights";
  const std::vector<HandTensor> tensors{
      {.name = "a", .type = GGML_TYPE_F32, .shape = {2, 3}, .values = std::vector<float>(6, 1.0F)},
      {.name = "b", .type = GGML_TYPE_BF16, .shape = {4}, .values = std::vector<float>(4, 0.5F)}};
  WriteSafetensors(weights, tensors);
  std::ifstream file(weights, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::ofstream(folder + "/safetensors", std::ios::binary) << '0' << bytes;
  std::filesystem::remove(weights);
  std::ofstream(folder + "/spiece", std::ios::binary)
      << '1' << SentencePieceBytes(HandPieces(), std::string("\x04\0\0\0abcdtext\0", 13));
  std::ofstream(folder + "/tokenizer.json")
      << R"(2{"added_tokens":[{"id":2,"content":"<extra_id_0>","special":true}],"normalizer":)"
         R"({"type":"Precompiled","precompiled_charsmap":"BAAAAGFiY2R0ZXh0AA=="},)"
         R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},)"
         R"({"type":"Metaspace","prepend_scheme":"always"}]},"model":{"type":"Unigram",)"
         R"("unk_id":0,"vocab":[["<unk>",0],["a",-1]]}})";
  std::ofstream(folder + "/config.json") << '3' << TinySwitchConfig({});
}

// The first byte is the size of pieces: http_fuzz.cc.
void WriteHttp(const std::string& folder) {
  std::ofstream(folder + "/get", std::ios::binary)
      << "\x01GET /v1/models?a=b%20c HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
  std::ofstream(folder + "/ahead", std::ios::binary)
      << "\x06POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
         "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
         "3;a=b\r\nabc\r\n0\r\nX: 1\r\n\r\nGET / HTTP/1.0\r\n\r\n";
}

void WriteHouse(const std::string& folder) {
  std::ofstream(folder + "/chat.json")
      << R"(0{"messages":[{"content":"\"model\":\"b\""}],"model":"\u0061","keep_alive":"1h30m"})";
  std::ofstream(folder + "/generate.json") << R"(0{"prompt":"a","keep_alive":-1.5,"model":null})";
  std::ofstream(folder + "/openai.json")
      << R"(1{"input":["a",[1,2]],"dimensions":4,"encoding_format":"base64","user":"u"})";
  std::ofstream(folder + "/ollama.json")
      << R"(2{"input":"a","truncate":false,"keep_alive":"5m","options":{}})";
  std::ofstream(folder + "/older.json") << R"(3{"prompt":"a"})";
  std::ofstream(folder + "/keep.txt") << "41h2m3.5s";
  std::ofstream(folder + "/stream.txt")
      << "5\x03HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: a\r\n"
         "Transfer-Encoding: chunked\r\n\r\n6\r\ndata: \r\n2\r\n\n\n\r\n0\r\n\r\n";
  std::ofstream(folder + "/whole.txt")
      << "5\x40HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n"
         "Connection: close\r\n\r\n{}";
}

// Saved texts of the target's own home. The target adds the checksum itself.
void WriteTexts(const std::string& folder) {
  const TextHome home{.origin = {}, .n_ctx = 64, .n_vocab = 100};
  const std::vector<Token> tokens = {1, 2, 3, 4, 5};
  const std::string bytes(9, '\7');
  const HostedMemory memory{
      .whole = bytes, .parts = {{.position = 2, .bytes = bytes}, {.position = 4, .bytes = "ab"}}};
  for (const bool has_parts : {false, true}) {
    const std::string path = folder + (has_parts ? "/parts.seq" : "/whole.seq");
    CHECK(WriteHosted(OutputPath(path), home, tokens, "notes",
                      has_parts ? memory : HostedMemory{.whole = bytes, .parts = {}}));
    DropChecksum(path);
  }
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: moestro_fuzz_seeds FOLDER\n");
    return 2;
  }
  const std::string folder = argv[1];
  for (const char* target :
       {"/gguf", "/policy", "/trace", "/paths", "/beside", "/low", "/imatrix", "/http", "/api",
        "/answer", "/template", "/hub", "/shard", "/convert", "/house", "/text"}) {
    std::filesystem::create_directories(folder + target);
  }
  moestro::WriteModels(folder + "/gguf");
  moestro::WritePolicies(folder + "/policy");
  moestro::WriteTraces(folder + "/trace");
  moestro::WritePathTables(folder + "/paths");
  moestro::WriteBeside(folder + "/beside");
  moestro::WriteLow(folder + "/low");
  moestro::WriteImportances(folder + "/imatrix");
  moestro::WriteShards(folder + "/shard");
  moestro::WriteHttp(folder + "/http");
  moestro::WriteRequests(folder + "/api");
  moestro::WriteAnswers(folder + "/answer");
  moestro::WriteTemplates(folder + "/template");
  moestro::WriteHubTexts(folder + "/hub");
  moestro::WriteHubFolderFiles(folder + "/convert");
  moestro::WriteHouse(folder + "/house");
  moestro::WriteTexts(folder + "/text");
  return 0;
}
