// Renders the result of a comparison for equality as text and as JSON.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "audit/checkpoints/equality.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostListed = 20;

nlohmann::ordered_json SideOfEquality(const CheckpointSide& side) {
  return {{"path", ValidUtf8(side.path)}, {"run", ValidUtf8(side.run)}, {"step", side.step}};
}

}  // namespace

std::string EqualityText(const CheckpointSide& a, const CheckpointSide& b, const Equality& result) {
  std::string out;
  for (const std::string& aside : result.aside)
    absl::StrAppend(&out, "not compared: ", Printable(aside), "\n");
  for (const std::string& unread : result.unread)
    absl::StrAppend(&out, "not compared: ", Printable(unread), "\n");
  for (const std::string& note : result.notes)
    absl::StrAppend(&out, "note: ", Printable(note), "\n");
  if (result.unequal.empty()) {
    absl::StrAppend(&out,
                    result.equal() ? "equal: "
                                   : absl::StrCat("not decided: ", result.unread.size(),
                                                  " not compared; equal are "),
                    Plural(result.tensors, "tensor"), ", ", result.bytes, " bytes; ",
                    Plural(result.values, "value"), " in addition (step ", a.step, " of ",
                    Printable(a.run), ", step ", b.step, " of ", Printable(b.run), ")\n");
    return out;
  }
  for (size_t i = 0; i < result.unequal.size() && i < kMostListed; ++i) {
    const Unequal& one = result.unequal[i];
    absl::StrAppend(&out, i == 0 ? "first difference: " : "                  ", Printable(one.name),
                    ": ", Printable(one.text), "\n");
  }
  if (result.unequal.size() > kMostListed)
    absl::StrAppend(&out, "and ", result.unequal.size() - kMostListed, " more\n");
  absl::StrAppend(&out, result.unequal.size(), " differ, ", result.tensors, " equal\n");
  return out;
}

std::string EqualityJson(const CheckpointSide& a, const CheckpointSide& b, const Equality& result) {
  nlohmann::ordered_json unequal = nlohmann::ordered_json::array();
  for (const Unequal& one : result.unequal)
    unequal.push_back({{"name", ValidUtf8(one.name)}, {"text", ValidUtf8(one.text)}});
  const auto list = [](const std::vector<std::string>& texts) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const std::string& text : texts) out.push_back(ValidUtf8(text));
    return out;
  };
  const nlohmann::ordered_json json = {
      {"schema", "plumbline.equality/1"}, {"a", SideOfEquality(a)},
      {"b", SideOfEquality(b)},           {"equal", result.equal()},
      {"tensors", result.tensors},        {"bytes", result.bytes},
      {"values", result.values},          {"unequal", unequal},
      {"aside", list(result.aside)},      {"not_compared", list(result.unread)},
      {"notes", list(result.notes)}};
  return json.dump(2) + "\n";
}

}  // namespace plumbline::audit
