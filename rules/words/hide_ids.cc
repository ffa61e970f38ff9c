#include "rules/words/hide_ids.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace plumbline::rules {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

// In these rules "sequence" is an id. In the rules for collectives and hangs it is the number of a
// call.
bool NamesIds(std::string_view rule) {
  return rule.starts_with("causality/") || rule.starts_with("drift/") ||
         rule == "performance/rollout-straggler";
}

bool IsIdKey(std::string_view key) {
  constexpr std::array kKeys = {"sequence",     "sequence_id", "sequence_hash", "changed_sequence",
                                "logged_token", "found_token", "token_id"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

// The values of the fields that hold an id. The finding's texts may contain these values.
class Ids {
 public:
  void Collect(const Struct& s) {
    for (const auto& [key, value] : s.fields()) Collect(value, IsIdKey(key));
  }
  // Longest first, because "12" is part of "12.3".
  std::vector<std::pair<std::string, std::string>> Phrases() const {
    std::vector<std::string> ids(ids_.begin(), ids_.end());
    std::sort(ids.begin(), ids.end(),
              [](const auto& a, const auto& b) { return a.size() > b.size(); });
    std::vector<std::pair<std::string, std::string>> phrases;
    for (const std::string& id : ids)
      phrases.emplace_back("sequence " + id, absl::StrCat("sequence ", kHiddenId));
    return phrases;
  }

 private:
  void Collect(const Value& value, bool is_id) {
    if (value.has_struct_value()) return Collect(value.struct_value());
    for (const Value& one : value.list_value().values()) Collect(one, is_id);
    if (is_id && !value.string_value().empty()) ids_.insert(value.string_value());
  }
  std::set<std::string> ids_;
};

// Removes the text between `begin` and `end`, wherever both occur in this order.
void CutBetween(std::string_view begin, std::string_view end, std::string* text) {
  for (size_t at = text->find(begin); at != std::string::npos; at = text->find(begin, at)) {
    at += begin.size();
    const size_t stop = text->find(end, at);
    if (stop == std::string::npos) return;
    text->replace(at, stop - at, kHiddenId);
  }
}

bool OfNumber(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
}

// Removes the number in "sequence 12", "sequence -3.07": a numeric id may have no field that
// contains it.
void CutNumbers(std::string* text) {
  constexpr std::string_view kWord = "sequence ";
  for (size_t at = text->find(kWord); at != std::string::npos; at = text->find(kWord, at)) {
    at += kWord.size();
    const size_t digit = at + (at < text->size() && (*text)[at] == '-' ? 1 : 0);
    if (digit >= text->size() || !absl::ascii_isdigit(static_cast<unsigned char>((*text)[digit])))
      continue;
    size_t end = digit;
    while (end < text->size() && OfNumber((*text)[end])) ++end;
    while (end > digit + 1 && (*text)[end - 1] == '.') --end;  // the end of the sentence
    text->replace(at, end - at, kHiddenId);
  }
}

class Hider {
 public:
  explicit Hider(const Ids& ids) : phrases_(ids.Phrases()) {}

  void Hide(std::string* text) const {
    absl::StrReplaceAll(phrases_, text);
    CutBetween("sequence ", ", position ", text);  // "step 3, sequence ID, position 17: ..."
    CutNumbers(text);
  }
  void Hide(Struct* s) const {
    for (auto& [key, value] : *s->mutable_fields()) {
      IsIdKey(key) ? HideId(&value) : Hide(&value);
    }
  }

 private:
  void Hide(Value* value) const {
    if (value->has_string_value()) Hide(value->mutable_string_value());
    if (value->has_struct_value()) Hide(value->mutable_struct_value());
    if (!value->has_list_value()) return;
    for (Value& one : *value->mutable_list_value()->mutable_values()) Hide(&one);
  }
  static void HideId(Value* value) {
    if (!value->has_null_value()) value->set_string_value(kHiddenId);
  }

  const std::vector<std::pair<std::string, std::string>> phrases_;
};

}  // namespace

v1::Finding WithoutIds(const v1::Finding& finding) {
  if (!NamesIds(finding.rule())) return finding;
  Ids ids;
  ids.Collect(finding.witness());
  ids.Collect(finding.details());
  const Hider hider(ids);
  v1::Finding out = finding;
  for (std::string* text : {out.mutable_title(), out.mutable_explanation(), out.mutable_fix()})
    hider.Hide(text);
  for (std::string& assumption : *out.mutable_assumptions()) hider.Hide(&assumption);
  if (out.has_witness()) hider.Hide(out.mutable_witness());
  if (out.has_details()) hider.Hide(out.mutable_details());
  if (out.has_forecast()) hider.Hide(out.mutable_forecast());
  return out;
}

std::string ReasonWithoutIds(const std::string& rule, const std::string& reason) {
  if (!NamesIds(rule)) return reason;
  std::string out = reason;
  Hider(Ids()).Hide(&out);
  return out;
}

}  // namespace plumbline::rules
