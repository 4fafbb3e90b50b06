// SPDX-License-Identifier: MIT
#include "hub/choose_file.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr std::string_view kUsual = "Q4_K_M";
constexpr size_t kMostListed = 40;  // models in a message

bool IsDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

struct PartName {
  std::string_view stem;  // without "-00001-of-00003"
  size_t part = 0;        // 0: of no split model
  size_t n_parts = 1;
};

// `stem`: without ".gguf".
PartName PartOf(std::string_view stem) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kLength = 1 + kDigits + kOf.size() + kDigits;
  if (stem.size() <= kLength) return {.stem = stem};
  const std::string_view tail = stem.substr(stem.size() - kLength);
  const std::string_view part = tail.substr(1, kDigits);
  const std::string_view whole = tail.substr(kLength - kDigits);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf || !IsDigits(part) ||
      !IsDigits(whole)) {
    return {.stem = stem};
  }
  const auto number = [](std::string_view digits) {
    return std::accumulate(digits.begin(), digits.end(), size_t{0}, [](size_t sum, char c) {
      return sum * 10 + static_cast<size_t>(c - '0');
    });
  };
  const size_t n = number(whole);
  const size_t i = number(part);
  if (i < 1 || i > n) return {.stem = stem};
  return {.stem = stem.substr(0, stem.size() - kLength), .part = i, .n_parts = n};
}

// Letters and digits from `at` on.
size_t WordEnd(std::string_view text, size_t at) {
  while (at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0) ++at;
  return at;
}

// The end of a type's name that begins at `at`, in upper case: Q8_0, IQ4_XS, BF16, MXFP4_MOE; 0:
// none.
size_t TypeEnd(std::string_view text, size_t at) {
  const std::string_view word = text.substr(at, WordEnd(text, at) - at);
  size_t letters = 0;
  while (letters < word.size() && std::isdigit(static_cast<unsigned char>(word[letters])) == 0) {
    ++letters;
  }
  const std::string_view kind = word.substr(0, letters);
  if (!IsDigits(word.substr(letters))) return 0;
  size_t end = at + word.size();
  if (kind == "BF" || kind == "F") return end;
  if (kind != "Q" && kind != "IQ" && kind != "TQ" && kind != "MXFP" && kind != "NVFP") return 0;
  while (end < text.size() && text[end] == '_' && WordEnd(text, end + 1) > end + 1) {
    end = WordEnd(text, end + 1);
  }
  return end;
}

// The last type's name in a path's part, "UD-" before it included; empty: none. `text`: upper case.
std::string TypeIn(std::string_view text) {
  constexpr std::string_view kDynamic = "UD-";
  std::string found;
  for (size_t at = 0; at < text.size(); ++at) {
    if (at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0) continue;
    const size_t end = TypeEnd(text, at);
    if (end == 0) continue;
    const bool is_dynamic = text.substr(0, at).ends_with(kDynamic);
    found = std::string(is_dynamic ? kDynamic : "") + std::string(text.substr(at, end - at));
    at = end - 1;
  }
  return found;
}

std::string_view BaseOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// The quantisation in the file's name, else in the name of the nearest folder that has one.
std::string QuantisationOf(std::string_view stem) {
  while (true) {
    const std::string type = TypeIn(UpperCase(BaseOf(stem)));
    const size_t slash = stem.rfind('/');
    if (!type.empty() || slash == std::string_view::npos) return type;
    stem = stem.substr(0, slash);
  }
}

// Whether a file belongs to a model without being one: an encoder of images, importances of
// weights.
bool IsBesideModels(std::string_view stem) {
  const std::string base = UpperCase(BaseOf(stem));
  return base.contains("MMPROJ") ||
         (base.contains("IMATRIX") && (base.starts_with("IMATRIX") || TypeIn(base).empty()));
}

std::optional<std::string_view> StemOf(std::string_view path) {
  constexpr size_t kSuffix = 5;  // ".gguf"
  if (path.size() <= kSuffix || UpperCase(path.substr(path.size() - kSuffix)) != ".GGUF") {
    return std::nullopt;
  }
  return path.substr(0, path.size() - kSuffix);
}

size_t PartNumber(const HubFile& file) {
  return PartOf(StemOf(file.path).value_or(std::string_view())).part;
}

// Whether `asked` is the end of the model's name or of one of its folders, as a word: "i1-Q4_K_M"
// of "x.i1-Q4_K_M".
bool EndsAs(const HubModel& model, const std::string& asked) {
  const std::string name = UpperCase(model.name);
  if (name.ends_with(asked)) {
    const size_t before = name.size() - asked.size();
    return before == 0 || std::isalnum(static_cast<unsigned char>(name[before - 1])) == 0;
  }
  return ("/" + name).contains("/" + asked + "/");
}

std::vector<HubModel> WithQuantisation(std::span<const HubModel> models, const std::string& asked) {
  std::vector<HubModel> found;
  std::ranges::copy_if(models, std::back_inserter(found), [&](const HubModel& model) {
    return UpperCase(model.quantisation) == asked;
  });
  if (!found.empty()) return found;
  std::ranges::copy_if(models, std::back_inserter(found),
                       [&](const HubModel& model) { return EndsAs(model, asked); });
  return found;
}

Result<HubModel> Whole(HubModel model, const std::string& repo) {
  if (model.is_complete()) return model;
  return Fail(Errc::kInvalidRequest, "{}: of the {} parts of {} only {} are there", repo,
              model.n_parts, Printable(model.name), model.files.size());
}

std::unexpected<Error> NoSuchFile(const std::vector<HubModel>& models, const ModelName& name) {
  std::vector<std::string> paths;
  for (const HubModel& model : models) {
    for (const HubFile& file : model.files) paths.push_back(file.path);
  }
  return Fail(Errc::kInvalidRequest, "{} has no model file '{}'{}", name.repo, Printable(name.file),
              NearestText(name.file, paths));
}

std::unexpected<Error> NotThere(const std::vector<HubModel>& models, const ModelName& name) {
  std::vector<std::string> labels;
  for (const HubModel& model : models) labels.push_back(model.label());
  return Fail(Errc::kInvalidRequest, "{} has no {}{}; it has {}", name.repo,
              Printable(name.quantisation), NearestText(name.quantisation, labels),
              ListText(models));
}

}  // namespace

uint64_t HubModel::bytes() const {
  uint64_t sum = 0;
  for (const HubFile& file : files) {
    sum = file.size > UINT64_MAX - sum ? UINT64_MAX : sum + file.size;
  }
  return sum;
}

bool HubModel::is_complete() const {
  if (files.size() != n_parts) return false;
  for (size_t i = 0; n_parts > 1 && i < n_parts; ++i) {
    if (PartNumber(files[i]) != i + 1) return false;
  }
  return true;
}

std::vector<HubModel> ModelsIn(std::span<const HubFile> files) {
  std::map<std::pair<std::string, size_t>, HubModel> by_name;  // (name, parts)
  for (const HubFile& file : files) {
    const auto stem = StemOf(file.path);
    if (!stem || IsBesideModels(*stem)) continue;
    const PartName part = PartOf(*stem);
    const bool is_split = part.part > 0;
    HubModel& model = by_name[{std::string(part.stem), is_split ? part.n_parts : 0}];
    model.name = part.stem;
    model.quantisation = QuantisationOf(part.stem);
    model.n_parts = part.n_parts;
    model.files.push_back(file);
  }
  std::vector<HubModel> models;
  for (auto& [name, model] : by_name) {
    std::ranges::sort(model.files, {}, PartNumber);
    models.push_back(std::move(model));
  }
  std::ranges::stable_sort(models, std::ranges::greater(), &HubModel::bytes);
  return models;
}

std::vector<HubModel> MatchingModels(std::span<const HubModel> models, const ModelName& name) {
  std::vector<HubModel> found;
  if (!name.file.empty()) {
    std::ranges::copy_if(models, std::back_inserter(found), [&](const HubModel& model) {
      return std::ranges::contains(model.files, name.file, &HubFile::path);
    });
    return found;
  }
  if (!name.quantisation.empty()) return WithQuantisation(models, UpperCase(name.quantisation));
  found = WithQuantisation(models, std::string(kUsual));
  if (found.empty() && models.size() == 1) found.push_back(models.front());
  return found;
}

Error SeveralMatch(std::span<const HubModel> found, const ModelName& name) {
  std::string all;
  for (const HubModel& model : found) {
    if (!all.empty()) all += ", ";
    all += Format("hf:{}/{}", name.repo, Printable(model.files.front().path, 200));
  }
  return {Errc::kInvalidRequest,
          Format("several files of {} are {}; write which: {}", name.repo,
                 name.quantisation.empty() ? kUsual : Printable(name.quantisation), all)};
}

Result<HubModel> ChooseModel(std::span<const HubFile> files, const ModelName& name) {
  const std::vector<HubModel> models = ModelsIn(files);
  if (models.empty()) {
    return Fail(Errc::kInvalidRequest,
                "{} has no GGUF file; models that this program runs are in repositories whose name "
                "mostly ends in -GGUF",
                name.repo);
  }
  std::vector<HubModel> found = MatchingModels(models, name);
  if (found.size() > 1) return std::unexpected(SeveralMatch(found, name));
  if (found.size() == 1) return Whole(std::move(found.front()), name.repo);
  if (!name.file.empty()) return NoSuchFile(models, name);
  if (!name.quantisation.empty()) return NotThere(models, name);
  return Fail(Errc::kInvalidRequest, "{} has no {}; write {}:QUANTISATION with one of: {}",
              name.repo, kUsual, name.repo, ListText(models));
}

std::string ListText(std::span<const HubModel> models) {
  std::string text;
  for (const HubModel& model : models.first(std::min(models.size(), kMostListed))) {
    if (!text.empty()) text += ", ";
    text += Format("{} ({})", Printable(model.label()), FormatBytes(model.bytes()));
  }
  if (models.size() > kMostListed) text += Format(" and {} more", models.size() - kMostListed);
  return text;
}

}  // namespace moestro
