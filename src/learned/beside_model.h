// SPDX-License-Identifier: MIT
// Files beside a model: their names, whether they were made for it, and the frame of those that are
// JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/output_file.h"
#include "base/result.h"
#include "core/run_identity.h"

namespace moestro {

// Files beside a model: they are made from a model, found by its name and valid for it alone. A new
// kind of file gets its name and its check in this header.

// Default path of a file of each kind, if none is named.
inline std::string PathsBeside(const std::string& model_path) { return model_path + ".paths"; }
inline std::string NormsBeside(const std::string& model_path) { return model_path + ".norms"; }
inline std::string TuningBeside(const std::string& model_path) {
  return model_path + ".policy.json";
}
inline std::string SweepBeside(const std::string& model_path) { return model_path + ".sweep.json"; }
// The paths of all kinds, whether the files exist or not.
inline std::vector<std::string> FilesBeside(const std::string& model_path) {
  return {PathsBeside(model_path), NormsBeside(model_path), TuningBeside(model_path),
          SweepBeside(model_path)};
}

// kInvalidRequest, naming the file, both models and the remedy, unless `made_for` may be `model`
// (see ModelId::may_be).
Status CheckMadeFor(const ModelId& model, const ModelId& made_for, const std::string& path,
                    std::string_view remedy);

// Reading and writing of small JSON files: a head with format, version and, for a file beside a
// model, the model, and fields that are checked. Errors name the field; ReadJsonFile() adds the
// file's name.

// One object of a file. kInvalidFile for a field that is missing, of another kind or out of range.
class Fields {
 public:
  // `where` begins the messages: "the file", "size 3".
  Fields(JsonView object, std::string where) : object_(object), where_(std::move(where)) {}

  Result<std::string> Text(std::string_view key) const;
  Result<double> Number(std::string_view key, double least, double most) const;
  // nullopt if the field is absent or null.
  Result<std::optional<double>> NumberIfAny(std::string_view key, double least, double most) const;
  Result<uint64_t> Count(std::string_view key, double least, double most) const;  // a whole number

 private:
  JsonView object_;
  std::string where_;
};

struct JsonFileKind {
  std::string_view format;  // value of "format"
  uint64_t version = 1;     // the newest known version
  std::string_view what;    // "a policy's settings", for the message about too large a file
};

// A new object with "format" and "version"; with "model", too.
Json BeginJsonFile(const JsonFileKind& kind);
Json BeginJsonFile(const JsonFileKind& kind, const ModelId& model);
// `path` holds the old file or the whole new one. kIo, naming the file and the reason.
Status WriteJsonFile(const OutputPath& path, const Json& json);

// Gives the file's object to `parse` if its head is right, with the model that the file names if
// `parse` takes one. kIo: cannot be read; kUnsupported: a newer format; kInvalidFile: anything
// else. Every message, that of `parse`, too, names the file.
Status ReadJsonFile(const std::string& path, const JsonFileKind& kind,
                    const std::function<Status(JsonView file)>& parse);
Status ReadJsonFile(const std::string& path, const JsonFileKind& kind,
                    const std::function<Status(JsonView file, ModelId model)>& parse);

}  // namespace moestro
