// SPDX-License-Identifier: MIT
// The shape of a property's values by its schema, for calls that write values in other ways than
// JSON.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_limit.h"
#include "schema/constraint.h"
#include "schema/schema_reader.h"

namespace moestro {

struct ValueShape {
  KindSet kinds = kAllKinds;
  // the value equals one of these, which live as long as the schema
  std::optional<std::vector<JsonView>> values = std::nullopt;
  // Further conditions for texts, as left_out() names them: "#: \"pattern\"".
  std::set<std::string> text_limits = {};

  bool Has(JsonKind kind) const { return (kinds & KindBit(kind)) != 0; }
  bool is_text() const { return kinds == KindBit(JsonKind::kText); }
};

// Errors are SchemaReader::Read()'s.
Result<ValueShape> ShapeOf(const SchemaProperty& property, const WorkLimit& limit);

}  // namespace moestro
