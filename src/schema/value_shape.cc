// SPDX-License-Identifier: MIT
#include "schema/value_shape.h"

#include "base/format.h"

namespace moestro {
namespace {

void AddTextLimits(const Constraint& constraint, const std::string& place, ValueShape& shape) {
  if (!constraint.Has(JsonKind::kText) || constraint.values) return;
  const auto add = [&](std::string_view keyword) {
    shape.text_limits.insert(Format("{}: \"{}\"", place, keyword));
  };
  if (constraint.length.least > 0) add("minLength");
  if (constraint.length.most) add("maxLength");
  for (const auto& [pattern, keyword] : constraint.patterns) shape.text_limits.insert(keyword);
  const auto text = static_cast<size_t>(JsonKind::kText);
  shape.text_limits.insert(constraint.left_out[text].begin(), constraint.left_out[text].end());
}

}  // namespace

Result<ValueShape> ShapeOf(const SchemaProperty& property, const WorkLimit& limit) {
  SchemaReader reader(property.root, limit, /*leaves_out=*/true);
  const PlaceId place = reader.PlaceOf(property);
  TRY(const SchemaReader::Cases cases, reader.Read({place}));
  ValueShape shape{.kinds = 0};
  std::vector<JsonView> values;
  bool are_all_fixed = true;
  for (const Constraint& constraint : cases) {
    AddTextLimits(constraint, reader.Where(place), shape);
    if (!constraint.values) {
      shape.kinds |= constraint.kinds;
      are_all_fixed = false;
      continue;
    }
    for (const JsonView value : *constraint.values) {
      if (!HoldsItself(constraint, value)) continue;
      shape.kinds |= KindBit(value.kind());
      values.push_back(value);
    }
  }
  if (are_all_fixed) shape.values = std::move(values);
  return shape;
}

}  // namespace moestro
