#include "audit/render/rule_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "audit/render/finding_text.h"
#include "rules/catalogue.h"

namespace plumbline::audit {
namespace {

using analysis::OptionInfo;
using rules::PlannedRule;
using rules::RuleInfo;

const char* TypeName(OptionInfo::Type type) {
  switch (type) {
    case OptionInfo::Type::kNumber:
      return "number";
    case OptionInfo::Type::kInteger:
      return "integer";
    case OptionInfo::Type::kFlag:
      return "flag";
    case OptionInfo::Type::kChoice:
      return "choice";
    case OptionInfo::Type::kText:
      return "text";
  }
  return "";
}

std::string Padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string RangeText(const OptionInfo& option) {
  switch (option.type) {
    case OptionInfo::Type::kFlag:
      return "on, off";
    case OptionInfo::Type::kChoice: {
      std::string choices = option.choices;
      for (size_t bar = choices.find('|'); bar != std::string::npos; bar = choices.find('|', bar)) {
        choices.replace(bar, 1, ", ");
      }
      return choices;
    }
    case OptionInfo::Type::kText:
      return "";
    default:
      return ShortNumber(option.low) + " to " + ShortNumber(option.high);
  }
}

std::string OptionsTable(const RuleInfo& info) {
  if (info.options.empty()) return "";
  std::string out =
      "\n## Options\n\nSet with `--set " + std::string(info.id) + ".OPTION=VALUE`.\n\n";
  out += "| option | default | unit | values | reason of the default |\n|---|---|---|---|---|\n";
  for (const OptionInfo& option : info.options) {
    out += std::string("| `") + option.name + "` | " + option.default_value + " | " + option.unit +
           " | " + RangeText(option) + " | " + option.reason + " |\n";
  }
  return out;
}

nlohmann::ordered_json OptionsJson(const RuleInfo& info) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OptionInfo& option : info.options) {
    nlohmann::ordered_json json = {{"name", option.name},         {"type", TypeName(option.type)},
                                   {"unit", option.unit},         {"default", option.default_value},
                                   {"values", RangeText(option)}, {"reason", option.reason}};
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

std::string RuleListText(const TextStyle& style, bool planned) {
  size_t width = 0;
  for (const auto& entry : rules::Catalogue())
    width = std::max(width, std::string_view(entry.info->id).size());
  for (const PlannedRule& rule : rules::PlannedRules())
    width = planned ? std::max(width, std::string_view(rule.id).size()) : width;
  const auto line = [&](Ink ink, const char* id, v1::Level level, const std::string& words) {
    return Inked(style, ink, Padded(id, width)) + "  " +
           Inked(style, LevelInk(level), Padded(std::string(LevelName(level)), 7)) + "  " + words +
           "\n";
  };
  std::string out;
  for (const auto& entry : rules::Catalogue())
    out += line(Ink::kBold, entry.info->id, entry.info->level, entry.info->title);
  if (!planned) return out;
  for (const PlannedRule& rule : rules::PlannedRules())
    out += line(Ink::kDim, rule.id, rule.level, std::string("planned: ") + rule.title);
  return out;
}

std::string RuleListJson(bool planned) {
  nlohmann::ordered_json json;
  json["schema"] = "plumbline.rules/1";
  json["rules"] = nlohmann::ordered_json::array();
  for (const auto& entry : rules::Catalogue()) {
    const RuleInfo& info = *entry.info;
    json["rules"].push_back({{"id", info.id},
                             {"group", info.group()},
                             {"level", LevelName(info.level)},
                             {"status", "built"},
                             {"since", info.since},
                             {"title", info.title},
                             {"options", OptionsJson(info)}});
  }
  for (const PlannedRule& rule : rules::PlannedRules()) {
    if (!planned) break;
    const std::string id = rule.id;
    json["rules"].push_back({{"id", id},
                             {"group", id.substr(0, id.find('/'))},
                             {"level", LevelName(rule.level)},
                             {"status", "planned"},
                             {"since", ""},
                             {"title", rule.title},
                             {"options", nlohmann::ordered_json::array()}});
  }
  return json.dump(2) + "\n";
}

std::string PlannedPage(const PlannedRule& rule) {
  return "# " + std::string(rule.id) + "\n\n" + rule.title + ".\n\nLevel: at most " +
         std::string(LevelName(rule.level)) + ".\n\nPlanned: this version does not judge it yet.\n";
}

std::string RulePage(const RuleInfo& info) {
  std::string_view page = info.page;
  while (page.starts_with('\n')) page.remove_prefix(1);
  while (page.ends_with('\n')) page.remove_suffix(1);
  return std::string(page) + "\n\n**Level.** At most " + std::string(LevelName(info.level)) +
         ". Since version " + info.since + ".\n" + OptionsTable(info);
}

std::string RuleIndexPage() {
  std::string out =
      "# Rules\n\nGenerated from the rules' own pages; `plumb explain RULE` prints the same.\n\n"
      "| rule | level | what it finds |\n|---|---|---|\n";
  for (const auto& entry : rules::Catalogue()) {
    const RuleInfo& info = *entry.info;
    const std::string id = info.id;
    out += "| [`" + id + "`](" + id + ".md) | " + std::string(LevelName(info.level)) + " | " +
           info.title + " |\n";
  }
  return out;
}

}  // namespace plumbline::audit
