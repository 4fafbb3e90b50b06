// SPDX-License-Identifier: MIT
#include "lab/profile_report.h"

#include "base/bytes.h"
#include "base/format.h"

namespace moestro {

std::string DescribeProfile(const Profile& p) {
  const MoeShape& shape = p.paths.table.shape();
  std::string text = Format(
      "learned  {} tokens, {} layers of {} experts, {} used\n"
      "paths    {} keys, {} in {}\n",
      p.paths.tokens, shape.n_layer, shape.n_expert, shape.n_used, p.paths.table.keys(),
      FormatBytes(p.file_bytes), p.written.paths.text());
  if (!p.written.norms.empty())
    text += Format("norms    mean lengths of outputs, in {}\n", p.written.norms.text());
  if (p.held_out == 0) return text + "recall   not measured: fewer than five tokens\n";
  return text + Format(
                    "recall   {:.1f} % on the last {} tokens, learned from those before; {:.1f} % "
                    "by popularity, {:.1f} % by repeating the last token\n",
                    100.0 * p.recall.paths, p.held_out, 100.0 * p.recall.popular,
                    100.0 * p.recall.repeat);
}

Json ProfileAsJson(const Profile& p) {
  Json object = Json::Object();
  object.Set("paths", p.written.paths.text())
      .Set("model", p.paths.model.name)
      .Set("tokens", p.paths.tokens)
      .Set("keys", p.paths.table.keys())
      .Set("file_bytes", p.file_bytes)
      .Set("norms", p.written.norms.text())
      .Set("held_out_tokens", p.held_out);
  if (p.held_out == 0) return object;
  object.Set("recall_paths", p.recall.paths)
      .Set("recall_popular", p.recall.popular)
      .Set("recall_repeat", p.recall.repeat);
  return object;
}

}  // namespace moestro
