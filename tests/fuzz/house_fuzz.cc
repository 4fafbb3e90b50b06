// SPDX-License-Identifier: MIT
// Any bytes as what a house reads: a request's model and keep_alive (the same as a whole reader of
// JSON finds), a request for embeddings, and a reply of a model's process, which means the same in
// pieces of any size. The first byte is the kind.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/api_error.h"
#include "api/embeddings.h"
#include "base/json.h"
#include "base/result.h"
#include "house/asked_model.h"
#include "house/passed_reply.h"

namespace moestro {
namespace {

void CheckRefusal(const ApiError& error) {
  CHECK(error.status == 400);
  CHECK(!error.message.empty() && !error.message.contains('\n'));
  CHECK(Json::Parse(ErrorBody(error)).has_value());
}

// A body that is JSON has the name that was found.
void ReadModel(std::string_view body) {
  const auto asked = ReadAskedModel(body);
  const auto json = Json::Parse(std::string(body));
  if (!asked) return CheckRefusal(asked.error());
  CHECK(!asked->keep_alive || std::isfinite(*asked->keep_alive));
  if (!json) return;
  const auto model = json->Find("model");
  const auto text = model ? model->text() : std::nullopt;
  CHECK(asked->model == (text ? *text : ""));
}

void ReadEmbedRequest(EmbedApi api, std::string_view body) {
  constexpr EmbedModel kModel{.n_vocab = 100, .n_embd = 8};
  const auto request = ParseEmbedRequest(api, body, kModel);
  if (!request) return CheckRefusal(request.error());
  CHECK(request->inputs.size() <= kMostEmbedInputs);
  CHECK(!request->dimensions || (*request->dimensions > 0 && *request->dimensions <= 8));
  if (api == EmbedApi::kOllamaOne && request->inputs.size() > 1) return;
  const Embeddings made{.values = std::vector<float>(request->inputs.size() * kModel.n_embd, 0.5F),
                        .n = kModel.n_embd};
  const std::string reply = EmbeddingsBody(api, *request, "name", Finished(api, *request, made));
  CHECK(Json::Parse(reply).has_value());
}

void ReadReply(std::string_view bytes, size_t piece) {
  PassedReply whole;
  std::string whole_body;
  whole.Push(bytes, whole_body);
  PassedReply pieces;
  std::string body;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const std::string_view next = bytes.substr(at, piece);
    pieces.Push(next, body);
  }
  CHECK(pieces.is_over() == whole.is_over() && pieces.is_wrong() == whole.is_wrong());
  if (whole.is_wrong()) return;
  CHECK(body == whole_body && pieces.has_head() == whole.has_head());
  if (!whole.has_head()) return;
  CHECK(whole.status() >= 200 && whole.status() < 600 && pieces.status() == whole.status());
  CHECK(!whole.has_length() || whole_body.size() <= whole.length());
  for (const auto& [name, value] : whole.headers()) {
    CHECK(!name.contains('\n') && !value.contains('\n'));
  }
  whole.End();
  CHECK(whole.is_over() || whole.is_wrong());
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] - '0') {
    case 0:
      moestro::ReadModel(rest);
      break;
    case 1:
    case 2:
    case 3:
      moestro::ReadEmbedRequest(static_cast<moestro::EmbedApi>(data[0] - '1'), rest);
      break;
    case 4:
      if (const auto seconds = moestro::ParseKeepAlive(rest)) CHECK(std::isfinite(*seconds));
      break;
    default:
      moestro::ReadReply(rest.substr(1), static_cast<uint8_t>(rest[0]) + size_t{1});
  }
  return 0;
}
