// SPDX-License-Identifier: MIT
// The small requests and answers beside the requests for text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_error.h"
#include "api/api_request.h"
#include "base/work_limit.h"
#include "core/ids.h"
#include "text/sampler.h"

namespace moestro {

// A model's data for clients.
struct ServedModel {
  std::string id;       // a name, no path
  int64_t created = 0;  // seconds since 1970
  uint32_t n_ctx = 0;   // tokens of one request, prompt and answer
  uint32_t n_ctx_train = 0;
  uint32_t n_vocab = 0;
  uint64_t n_params = 0;
  uint64_t size_bytes = 0;        // bytes of the tensors
  std::string architecture = {};  // "qwen3moe"
  std::string quantization = {};  // the type that most weights have: "q4_K"
  std::string digest = {};        // hexadecimal; differs between models
  std::string path = {};
  std::string chat_template = {};
  std::vector<std::string> capabilities = {};  // "completion", "tools", "thinking", "embedding"
  std::vector<std::string> warnings = {};      // for users of the model
  uint32_t n_embd = 0;       // values of an embedding; 0: the model writes text and gives none
  std::string pooling = {};  // of a model for embeddings: "mean", "cls", "last"
  std::string no_embeddings = {};  // why the model gives none; empty: it gives some
};

// llama-server's /props: the defaults of a request, and facts of the model.
struct ServerProperties {
  SamplingOptions defaults;
  uint32_t parallel = 0;  // texts that are computed beside each other
  std::string bos = {};
  std::string eos = {};
  std::string build = {};
};
std::string PropertiesBody(const ServedModel& model, const ServerProperties& properties);

std::string ModelBody(const ServedModel& model);
std::string ModelListBody(std::span<const ServedModel> models);

// `warnings`: the server's warnings about its model.
std::string HealthBody(std::span<const std::string> warnings);
// The body of a 503 while the server lacks something; `missing`: a sentence for each lacking part.
std::string MissingBody(std::span<const std::string> missing);
// The body of a 503 until the model is loaded.
std::string LoadingBody();

struct TokenizeRequest {
  std::string content;
  bool add_special = false;   // with the tokens that begin and end a text
  bool parse_special = true;  // control tokens may be spelled
  bool with_pieces = false;
};
ApiResult<TokenizeRequest> ParseTokenizeRequest(std::string_view body, const WorkLimit& limit = {});
std::string TokenizeBody(std::span<const Token> tokens);
// `pieces`: the tokens' bytes. REQUIRES: a piece for each token.
std::string TokenizeBody(std::span<const Token> tokens, std::span<const std::string> pieces);

ApiResult<std::vector<Token>> ParseDetokenizeRequest(std::string_view body, uint32_t n_vocab,
                                                     const WorkLimit& limit = {});
std::string DetokenizeBody(std::string_view text);

// The answer of /apply-template. The request is of ApiKind::kChat, and only the input counts.
std::string ApplyTemplateBody(std::string_view prompt);
// The number of tokens of a request's input.
std::string InputTokensBody(ApiKind kind, uint64_t n_tokens);

// A client's request about a place, and the answer, in llama-server's form: POST
// /slots/N?action=save|restore|erase. llama-server calls a place a slot: one of the texts that are
// computed beside each other.

enum class SaveAction : uint8_t { kSave, kRestore, kErase };

struct SaveFigures {
  uint64_t tokens = 0;
  uint64_t bytes = 0;    // bytes of the file; 0 for erasing
  double seconds = 0.0;  // time that the task took
};

// "save", "restore" or "erase"; 400 for any other word.
ApiResult<SaveAction> ParsePlaceAction(std::string_view action);
// The body's "filename". 400 unless it is a plain name: 1 to 200 bytes, no separator, no control
// character, no dot at the beginning, no two dots in a row.
ApiResult<std::string> ParseTextFile(std::string_view body);

std::string PlaceBody(SaveAction action, uint32_t place, std::string_view file,
                      const SaveFigures& figures);

// Ollama's small answers, for editors that speak only Ollama's interface.

// "2026-01-31T12:00:00Z".
std::string UtcTime(int64_t seconds);

// {"error": "text"}.
std::string OllamaErrorBody(const ApiError& error);
// The version of Ollama that has this interface: clients leave out what older versions lack.
std::string OllamaVersionBody();
// The models on disk, and the models in memory: the one model.
std::string OllamaTagBody(const ServedModel& model);  // one entry of the list
std::string OllamaTagsBody(const ServedModel& model);
std::string OllamaRunningBody(const ServedModel& model);
// 400 unless the body names a model, which may be any.
ApiStatus CheckOllamaShow(std::string_view body, const WorkLimit& limit);
// The context in this body is the tokens that one request may have.
std::string OllamaShowBody(const ServedModel& model);
// The answer to a request without a prompt, which only loads the model.
std::string OllamaLoadedBody(const ApiRequest& request, const ReplyHead& head);

}  // namespace moestro
