// SPDX-License-Identifier: MIT
#include "schema/pattern.h"

#include <algorithm>
#include <utility>

#include "schema/pattern_node.h"

namespace moestro {
namespace {

RuleId WriteNode(const PatternNode& node, RuleSet& rules) {
  switch (node.kind) {
    case PatternNode::Kind::kSet:
      return rules.Shared(node.set.InJsonString());
    case PatternNode::Kind::kRepeat:
      return rules.Repeated(WriteNode(node.children.front(), rules), node.times);
    case PatternNode::Kind::kChoice: {
      const RuleId rule = rules.Add();
      for (const PatternNode& child : node.children) {
        rules.AddAlternative(rule, RuleBody().Rule(WriteNode(child, rules)));
      }
      return rule;
    }
    case PatternNode::Kind::kSequence:
      break;
  }
  RuleBody body;
  if (node.children.empty()) body.Gbnf("\"\"");
  for (const PatternNode& child : node.children) body.Rule(WriteNode(child, rules));
  return rules.Add(std::move(body));
}

bool Fits(Times length, Times wanted) {
  return length.least >= wanted.least &&
         (!wanted.most || (length.most && *length.most <= *wanted.most));
}

bool MayFit(Times length, Times wanted) {
  return (!wanted.most || length.least <= *wanted.most) &&
         (!length.most || *length.most >= wanted.least);
}

// Limits a sequence that has at most one part of varying length, a repetition of single characters.
Result<bool> LimitSequence(PatternNode& sequence, Times wanted) {
  const Times all = PatternLength(sequence);
  if (Fits(all, wanted)) return true;
  if (!MayFit(all, wanted)) return false;
  PatternNode* counted = nullptr;
  uint64_t fixed = 0;
  for (PatternNode& child : sequence.children) {
    const Times length = PatternLength(child);
    if (length.most == length.least) {
      fixed += length.least;
      continue;
    }
    const bool counts_characters = child.kind == PatternNode::Kind::kRepeat &&
                                   PatternLength(child.children.front()).least == 1 &&
                                   PatternLength(child.children.front()).most == 1U;
    if (counted != nullptr || !counts_characters) {
      return Fail(Errc::kUnsupported, "a limit of the length beside such a pattern");
    }
    counted = &child;
  }
  if (counted == nullptr) return false;  // all parts have fixed lengths, and the sum does not fit
  Times& times = counted->times;
  if (wanted.least > fixed) times.least = std::max(times.least, wanted.least - fixed);
  if (wanted.most) {
    const uint64_t most = *wanted.most - fixed;
    times.most = std::min(times.most.value_or(most), most);
  }
  return times.least <= times.most.value_or(times.least);
}

}  // namespace

Pattern::Pattern(std::unique_ptr<PatternNode> root) : root_(std::move(root)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Result<Pattern> Pattern::Parse(std::string_view text) {
  TRY(PatternNode root, ParsePattern(text));
  return Pattern(std::make_unique<PatternNode>(std::move(root)));
}

Result<bool> Pattern::Limit(Times length) {
  std::vector<PatternNode> kept;
  for (PatternNode& alternative : root_->children) {
    TRY(const bool is_left, LimitSequence(alternative, length));
    if (is_left) kept.push_back(std::move(alternative));
  }
  root_->children = std::move(kept);
  return !root_->children.empty();
}

RuleId Pattern::Write(RuleSet& rules) const { return WriteNode(*root_, rules); }

}  // namespace moestro
