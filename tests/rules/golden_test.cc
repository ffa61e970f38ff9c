// Golden cases: tests/rules/<group>/<name>/*.case, each an input with its expected verdict. If a
// case fails, the new text is printed; PLUMB_ACCEPT=1 writes it. PLUMB_SHORT=1 prints the first
// action. The format is documented in tests/rules/support/golden_case.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <span>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rules/catalogue.h"
#include "rules/engine/engine.h"
#include "rules/words/in_short.h"
#include "rules/words/words.h"
#include "tests/rules/support/golden_case.h"

namespace plumbline::rules {
namespace {

using testing::GoldenCase;

std::string ValueText(const google::protobuf::Value& value) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue:
      return absl::StrFormat("%.6g", value.number_value());
    case google::protobuf::Value::kStringValue:
      return value.string_value();
    case google::protobuf::Value::kStructValue: {
      std::map<std::string, std::string> sorted;
      for (const auto& [key, inner] : value.struct_value().fields()) sorted[key] = ValueText(inner);
      std::string text;
      for (const auto& [key, inner] : sorted)
        absl::StrAppend(&text, text.empty() ? "" : " ", key, "=", inner);
      return "{" + text + "}";
    }
    case google::protobuf::Value::kListValue: {
      constexpr int kMostShown = 16;  // for plotted arrays
      std::string text;
      const int size = value.list_value().values_size();
      if (size > kMostShown) return absl::StrCat("[", size, " values]");
      for (const auto& inner : value.list_value().values())
        absl::StrAppend(&text, text.empty() ? "" : " ", ValueText(inner));
      return "[" + text + "]";
    }
    case google::protobuf::Value::kBoolValue:
      return value.bool_value() ? "true" : "false";
    default:
      return "null";
  }
}

void RenderStruct(const char* name, const google::protobuf::Struct& s, std::string& out) {
  std::map<std::string, std::string> sorted;
  for (const auto& [key, value] : s.fields()) sorted[key] = ValueText(value);
  for (const auto& [key, text] : sorted)
    absl::StrAppend(&out, "  ", name, " ", key, ": ", text, "\n");
}

std::string Render(const v1::Verdict& verdict) {
  static const char* const kKinds[] = {"?", "pass", "finding", "inconclusive"};
  static const char* const kLevels[] = {"?", "note", "warning", "error"};
  static const char* const kStrengths[] = {"?", "heuristic", "statistical", "bounded", "proved"};
  std::string out =
      absl::StrCat(kKinds[verdict.kind()], " ", verdict.rule(), " at ", verdict.site().layer(), "/",
                   verdict.site().op(), " steps ", verdict.site().step_first(), "-",
                   verdict.site().step_last(), "\n");
  if (!verdict.reason().empty()) absl::StrAppend(&out, "  reason: ", verdict.reason(), "\n");
  if (verdict.kind() == v1::Verdict::KIND_FINDING) {
    const v1::Finding& f = verdict.finding();
    absl::StrAppend(&out, "  ", kLevels[f.level()], ", ", kStrengths[f.strength()], ": ", f.title(),
                    "\n");
    absl::StrAppend(&out, "  explanation: ", f.explanation(), "\n");
    absl::StrAppend(&out, "  cause: ", f.cause().id(),
                    absl::StrFormat(" (%.6g)", f.cause().confidence()), "\n");
    absl::StrAppend(
        &out, absl::StrFormat("  measured: %s %.6g %s, threshold %.6g, %s\n", f.measured().name(),
                              f.measured().value(), f.measured().unit(), f.threshold().value(),
                              f.threshold().source()));
    RenderStruct("witness", f.witness(), out);
    absl::StrAppend(&out, "  fix: ", f.fix(), "\n");
  }
  RenderStruct("details", verdict.details(), out);
  for (const std::string& assumption : verdict.assumptions())
    absl::StrAppend(&out, "  assuming: ", assumption, "\n");
  return out;
}

ptrdiff_t Letters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; });
}

// Options without a value. All others need one.
constexpr std::string_view kFlags[] = {"--accumulate-allreduce-grads-in-fp32",
                                       "--attention-softmax-in-fp32", "--bf16",
                                       "--calculate-per-token-loss"};
// Words in capitals that are not placeholders.
constexpr std::string_view kConstants[] = {
    "NCCL_ALGO", "TORCH_DISTRIBUTED_DEBUG", "DETAIL", "CLOCK", "TEMPERATURE", "ECC", "POWER",
    "POST",      "NVIDIA_TF32_OVERRIDE"};

bool OneOf(std::string_view word, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Checks that the line can be pasted and that each placeholder is explained.
void CheckCommand(const std::string& command, const std::string& where) {
  const std::string what = absl::StrCat(where, ": ", command);
  EXPECT_TRUE(IsPastable(command)) << what;
  const bool option = command.substr(0, 2) == "--";
  EXPECT_TRUE(!option || command.find_first_of(" =") != std::string::npos || OneOf(command, kFlags))
      << what << " has no value, and is not listed here as a flag";
  const std::string explained = "; " + PlaceholdersIn(command);
  const auto is_part = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  for (size_t at = 0; at < command.size();) {
    size_t end = at;
    while (end < command.size() && is_part(command[end])) ++end;
    const std::string word = command.substr(at, end - at);
    at = end + 1;
    const bool capitals = word.size() > 1 && std::all_of(word.begin(), word.end(), [](char c) {
                            return std::isupper(static_cast<unsigned char>(c)) != 0 || c == '_';
                          });
    if (!capitals || OneOf(word, kConstants)) continue;
    EXPECT_NE(explained.find(absl::StrCat("; ", word, ": ")), std::string::npos)
        << what << ": no text explains " << word;
  }
}

// Checks the maximum lengths of texts in rows and alerts, and that each command is a single line.
void CheckShort(const v1::Finding& finding, const GoldenCase& c) {
  constexpr ptrdiff_t kMostTitle = 70;
  const std::string where = absl::StrCat(finding.rule(), " in ", c.path.string());
  EXPECT_GT(Letters(finding.title()), 0) << where;
  EXPECT_LE(Letters(finding.title()), kMostTitle) << where << ": " << finding.title();
  const InShort in_short = ShortOf(finding);
  EXPECT_FALSE(finding.fix().empty()) << where;
  EXPECT_GT(Letters(in_short.act), 8) << where;
  EXPECT_LE(Letters(in_short.act), static_cast<ptrdiff_t>(kMostAct)) << where << in_short.act;
  EXPECT_EQ(in_short.act.find("\u2026"), std::string::npos) << where << ": " << in_short.act;
  EXPECT_LE(Letters(in_short.title), static_cast<ptrdiff_t>(kMostShort)) << where;
  for (const FixCommand& one : in_short.commands) CheckCommand(one.text, where);
  // Arrays for plots are bounded, because findings are stored, sent and displayed without
  // truncation.
  for (const auto& [key, value] : finding.witness().fields()) {
    if (!IsPicture(key)) continue;
    EXPECT_LE(value.ByteSizeLong(), 48u << 10) << where << ": " << key;
  }
  if (std::getenv("PLUMB_SHORT") != nullptr) {
    std::printf("%s\n  act      %s\n  command  %s\n  fix      %s\n", where.c_str(),
                in_short.act.c_str(), in_short.command().c_str(), finding.fix().c_str());
  }
}

std::string JudgeCase(const std::string& rule, const GoldenCase& c) {
  std::string out;
  auto engine = Engine::Create(testing::ConfigOf(c), [&](const v1::Verdict& verdict) {
    if (verdict.kind() == v1::Verdict::KIND_FINDING) CheckShort(verdict.finding(), c);
    if (verdict.rule() == rule) out += Render(verdict);
  });
  if (!engine.ok()) return std::string(engine.status().message()) + "\n";
  out += testing::Feed(c, engine->get());
  (*engine)->Finish();
  return out.empty() ? "silent\n" : out;
}

TEST(Golden, EveryCaseGivesItsVerdict) {
  int cases = 0;
  const char* only = std::getenv("PLUMB_GOLDEN");  // part of a rule name
  for (const CatalogueEntry& entry : Catalogue()) {
    if (only != nullptr && std::string_view(entry.info->id).find(only) == std::string_view::npos)
      continue;
    for (const GoldenCase& c : testing::GoldenCases(PLUMBLINE_SOURCE_DIR, entry.info->id)) {
      const std::string actual = JudgeCase(entry.info->id, c);
      ++cases;
      if (actual == c.expect) continue;
      if (std::getenv("PLUMB_ACCEPT") != nullptr) {
        std::ofstream(c.path) << c.head << actual;
        continue;
      }
      ADD_FAILURE() << entry.info->id << "/" << c.path.filename().string()
                    << " gives (PLUMB_ACCEPT=1 to accept):\n"
                    << actual;
    }
  }
  EXPECT_GT(cases, 10);
}

}  // namespace
}  // namespace plumbline::rules
