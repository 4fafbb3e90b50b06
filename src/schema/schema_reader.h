// SPDX-License-Identifier: MIT
// Reads a JSON schema's keywords into constraints: follows references, merges the schemas of allOf,
// and makes a case of each combination that anyOf and oneOf allow.
//
// Thread rule: any one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_limit.h"
#include "schema/constraint.h"

namespace moestro {

// A property that a schema describes.
struct SchemaProperty {
  JsonView root;  // the whole schema
  std::string_view key;
  JsonView view;
};

class SchemaReader {
 public:
  using Cases = std::vector<Constraint>;  // one of them holds; empty: no value is accepted

  // `schema` must live as long as this reader and its results. `leaves_out`: keywords that no
  // grammar can express go to Constraint::left_out, and a oneOf is read as an anyOf.
  explicit SchemaReader(JsonView schema, WorkLimit limit = {}, bool leaves_out = false);

  NodeId root() const { return 0; }
  NodeId PlaceOf(const SchemaProperty& property);  // in the same schema
  // kInvalidRequest for a keyword with a wrong value or a reference that leads nowhere or only to
  // itself; kUnsupported for a reference elsewhere, and for schemas that need too much work.
  // Keywords that merely cannot be expressed are in Constraint::unsupported.
  Result<Cases> Read(const NodeSet& places);
  // Whether all places accept the value. kUnsupported if that cannot be decided.
  Result<bool> Accepts(const NodeSet& places, JsonView value);
  Result<bool> Accepts(const Constraint& constraint, JsonView value);
  // Like Accepts(), for a value of constraint.values.
  Result<bool> AcceptsOwn(const Constraint& constraint, JsonView value);
  bool leaves_out() const { return leaves_out_; }
  // The first keywords that the schema's grammar does not express: "#/$defs/name: \"multipleOf\"".
  const std::set<std::string>& left_out() const { return left_out_; }
  void NoteLeftOut(const Constraint& constraint, JsonKind kind);
  void NoteLeftOut(std::string what);
  // Counts a part of the work that a schema may make.
  Status Spend(size_t work);
  // A JSON pointer for messages: "#/$defs/name".
  std::string Where(NodeId place) const;
  std::string Where(const NodeSet& places) const;

 private:
  struct SchemaNode {
    NodeId parent;
    std::string token;  // its key in the parent
    JsonView view;
    bool is_being_read = false;
    std::optional<Cases> cases = std::nullopt;
  };
  struct Keyword {
    NodeId place;
    std::string name;
    JsonView value;
  };

  NodeId AddPlace(NodeId parent, std::string_view token, JsonView view);
  NodeId Below(const Keyword& keyword);
  NodeId Below(const Keyword& keyword, std::string_view key, JsonView view);
  std::unexpected<Error> Wrong(const Keyword& keyword, std::string_view wanted) const;

  Result<Cases> ReadPlace(NodeId place);
  Result<Cases> ReadObject(NodeId place);
  Result<Constraint> ReadKeywords(NodeId place);
  void CannotSay(const Keyword& keyword, KindSet kinds, Constraint& constraint) const;
  Status ReadGeneral(const Keyword& keyword, Constraint& constraint);
  Status ReadNumber(const Keyword& keyword, Constraint& constraint);
  Status ReadString(const Keyword& keyword, Constraint& constraint);
  Status ReadArray(const Keyword& keyword, Constraint& constraint);
  Status ReadMembers(const Keyword& keyword, Constraint& constraint);
  Status ReadType(const Keyword& keyword, Constraint& constraint);
  Status ReadFormat(const Keyword& keyword, Constraint& constraint);
  Result<uint64_t> Count(const Keyword& keyword) const;
  Status ReadItems(const Keyword& keyword, Constraint& constraint);
  Status ReadRequired(const Keyword& keyword, Constraint& constraint);

  Result<NodeId> Resolve(const Keyword& reference);
  Status CheckBranches(const Keyword& keyword) const;
  Result<Cases> ReadBranches(const Keyword& keyword);
  Result<Cases> And(const Cases& a, const Cases& b);
  Result<Cases> ExactlyOne(const Cases& base, const Keyword& keyword);
  bool IsSurelyEmpty(const Constraint& constraint, int depth);
  bool IsSurelyEmpty(const NodeSet& places, int depth);

  WorkLimit limit_;
  bool leaves_out_;
  bool is_probing_ = false;  // places read now may not become part of the grammar
  std::set<std::string> left_out_;
  std::vector<SchemaNode> places_;
  std::map<std::pair<NodeId, std::string>, NodeId> by_token_;
  int depth_ = 0;
  size_t work_ = 0;
};

}  // namespace moestro
