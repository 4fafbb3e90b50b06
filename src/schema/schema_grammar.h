// SPDX-License-Identifier: MIT
// GBNF grammars for libllama's grammar sampler, made of JSON schemas: a text that a grammar allows
// is JSON that its schema accepts. All that a schema accepts is allowed, compact or with the blanks
// of JsonRules(), but: names of described properties and the text of a pattern are written without
// needless escapes, numbers have at most 19 digits before the point and 24 after it, and numbers
// with a bound no exponent. In an object with more properties than orders can be counted
// (object_writer.h), and in many objects with some, described properties keep the schema's order.
//
// Where keywords that a grammar cannot express may be left out, the grammar allows more than the
// schema: left_out() names the missing keywords. Properties that are too many to be counted then
// have any order, but an optional one may come again.
//
// Drafts 4 to 2020-12. Keywords that only describe are ignored, and so are unknown ones and formats
// outside the standard.
//
// Thread rule: any one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/work_limit.h"
#include "schema/constraint.h"
#include "schema/schema_reader.h"

namespace moestro {

// GBNF rules for JSON as such. Between values one blank may stand, or a line end and up to 32
// blanks, as writers of JSON put them; without a bound a model may write blanks for ever.

struct JsonRule {
  std::string_view name;
  std::string_view body;
};

// All begin with "json-".
std::span<const JsonRule> JsonRules();

// Members of an object whose rules are known by name.
struct GrammarMembers {
  struct Member {
    std::string rule;
    bool is_required = false;
  };
  std::vector<Member> members;
  std::string separator;  // GBNF of the text between two members
};

class GrammarRules {
 public:
  static constexpr size_t kLongestSchema = size_t{256} << 10;
  static constexpr size_t kLongestText = size_t{256} << 10;  // the sampler takes no more

  // The treatment of a keyword that restricts and that a grammar cannot express.
  enum class Unsaid : uint8_t { kRefused, kLeftOut };

  explicit GrammarRules(WorkLimit limit = {}, Unsaid unsaid = Unsaid::kRefused)
      : limit_(std::move(limit)), unsaid_(unsaid) {}

  // Adds rules for the JSON texts that a schema accepts, and returns the first one's name, which
  // begins with `name`. kInvalidRequest: no schema, or a schema that accepts nothing; kUnsupported
  // for a keyword that restricts and cannot be expressed in a grammar, and for a schema that needs
  // too large a grammar. Both name the place in the schema. Errors of the limit. Adds nothing on
  // failure.
  Result<std::string> AddSchema(std::string_view schema, std::string_view name);
  // Like AddSchema(), for objects that the schema accepts.
  Result<std::string> AddObjectSchema(std::string_view schema, std::string_view name);
  // Like AddSchema(), for one property of a schema. The property's references are to the whole
  // schema.
  Result<std::string> AddProperty(const SchemaProperty& property, std::string_view name);
  // Adds a rule for one or more of the members in any order, and returns its name. left_out() names
  // members that may come again. REQUIRES: `members` is not empty.
  std::string AddMembers(const GrammarMembers& members, std::string_view name);
  // Adds a rule for any JSON object. Returns the rule's name.
  std::string AddAnyObject();
  // Adds `name ::= body`; the name is changed if another rule has it, if its characters are not
  // allowed in GBNF, or if it begins with "json-". Returns the name.
  std::string AddRule(std::string_view name, std::string_view body);
  // The first keywords of all schemas that the grammar does not enforce, with their places.
  const std::vector<std::string>& left_out() const { return left_out_; }
  void NoteLeftOut(std::string_view what);
  // Sets the owner of schemas added from now on, whose name precedes their entries in left_out().
  void SetOwner(std::string_view owner) { owner_ = owner; }
  // Sets the treatment of keywords that cannot be expressed, from now on.
  void SetUnsaid(Unsaid unsaid) { unsaid_ = unsaid; }
  // A text in GBNF's quotes.
  static std::string Literal(std::string_view text);
  // Text() would be longer than kLongestText: no use in adding more.
  bool is_full() const { return bytes_ > kLongestText; }
  // All rules, one a line. REQUIRES: a rule "root" was added.
  std::string Text() const;

 private:
  // A name that no rule has. With `is_family` no rule's name may begin with it and a dash, either.
  std::string FreeName(std::string_view name, bool is_family);
  void Add(std::string name, std::string body);
  void AddJsonRules();
  // Adds rules for a place of the reader's schema.
  Result<std::string> AddPlace(SchemaReader& reader, NodeId place, KindSet kinds,
                               std::string_view name);
  Result<std::string> AddKinds(std::string_view schema, KindSet kinds, std::string_view name);
  void AddNamed(std::vector<std::pair<std::string, std::string>> named);

  WorkLimit limit_;
  Unsaid unsaid_;
  std::string owner_;
  // Steps left for orders of members: half of kLongestText at most (33 bytes for a written step).
  size_t order_steps_ = 4096;
  std::vector<std::string> left_out_;
  std::map<std::string, std::string, std::less<>> rules_;
  // The numbers from which on a name may be free; a rule's name stays taken.
  std::map<std::pair<std::string, bool>, uint32_t> next_number_;
  size_t bytes_ = 0;  // bytes of Text()
};

// The shape of a property's values by its schema, for calls that write values in other ways than
// JSON.

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
