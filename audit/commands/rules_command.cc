// plumb rules: prints the catalogue; with --all, planned rules too. plumb explain RULE: prints one
// rule's page. The hidden `rules --write-docs DIR` writes the pages as files; docs/rules/ is
// generated and checked with it.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "audit/commands/commands.h"
#include "audit/render/rule_text.h"
#include "command_line/completion.h"
#include "command_line/usage.h"
#include "rules/catalogue.h"

namespace plumbline::audit {
namespace {

// Writes DIR/<group>/<name>.md for each rule, and DIR/README.md for all.
int WriteDocs(const std::string& directory) {
  for (const rules::CatalogueEntry& entry : rules::Catalogue()) {
    const std::filesystem::path path =
        std::filesystem::path(directory) / (std::string(entry.info->id) + ".md");
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error)
      return Fail(path.parent_path().string() +
                  ": expected a directory, found: " + error.message());
    if (!WriteOutput(path.string(), RulePage(*entry.info))) return kExitError;
  }
  const std::string index = (std::filesystem::path(directory) / "README.md").string();
  return WriteOutput(index, RuleIndexPage()) ? kExitClean : kExitError;
}

// Returns the full id of a rule given by its name alone, if exactly one rule, built or planned, has
// that name. Otherwise returns `given`.
std::string WholeId(const std::string& given) {
  std::string found;
  const auto offer = [&](std::string_view id) {
    if (id.substr(id.find('/') + 1) == given) found = found.empty() ? id : given;
  };
  for (const rules::CatalogueEntry& entry : rules::Catalogue()) offer(entry.info->id);
  for (const rules::PlannedRule& planned : rules::PlannedRules()) offer(planned.id);
  return found.empty() ? given : found;
}

// Returns a line for each rule, built or planned, whose id or title has all of the words; "" if
// none.
std::string RulesAbout(const std::string& words) {
  const std::vector<std::string> parts =
      absl::StrSplit(absl::AsciiStrToLower(words), ' ', absl::SkipEmpty());
  std::string out;
  const auto offer = [&](const std::string& id, const std::string& title) {
    const std::string text = absl::AsciiStrToLower(id + " " + title);
    const bool all = std::all_of(parts.begin(), parts.end(), [&](const std::string& word) {
      return text.find(word) != std::string::npos;
    });
    if (!all || parts.empty()) return;
    out += "  " + id + std::string(id.size() < 32 ? 32 - id.size() : 0, ' ') + "  " + title + "\n";
  };
  for (const rules::CatalogueEntry& entry : rules::Catalogue())
    offer(std::string(entry.info->id), std::string(entry.info->title));
  for (const rules::PlannedRule& planned : rules::PlannedRules())
    offer(std::string(planned.id), std::string(planned.title));
  return out;
}

}  // namespace

void RegisterRules(CLI::App& app, int* status) {
  struct Arguments {
    std::string format = "text";
    std::string docs;
    bool all = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("rules", "Lists the rules");
  command->add_flag("--all", arguments->all, "Also list planned rules");
  command->add_option("--format", arguments->format, "Output format")
      ->check(OneOf({"text", "json"}))
      ->capture_default_str();
  command->add_option("--write-docs", arguments->docs)->type_name("DIR")->group("");
  command->callback([arguments, status] {
    if (!arguments->docs.empty()) {
      *status = WriteDocs(arguments->docs);
      return;
    }
    const std::string text = arguments->format == "json"
                                 ? RuleListJson(arguments->all)
                                 : RuleListText(StyleFor(STDOUT_FILENO), arguments->all);
    *status = WriteOutput("", text) ? kExitClean : kExitError;
  });
}

void RegisterExplain(CLI::App& app, int* status) {
  auto rule = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand(
      "explain", "Prints the page of a rule: what it checks, why, how to fix it");
  command
      ->add_option(
          "RULE", *rule,
          "Id of a rule, as in the list of plumb rules; or words, which are searched in the titles")
      ->check(OfferPrinted("plumb rules"))
      ->required();
  command->callback([rule, status] {
    *rule = WholeId(*rule);
    const rules::CatalogueEntry* entry = rules::FindRule(*rule);
    if (const rules::PlannedRule* planned = rules::FindPlannedRule(*rule)) {
      *status = WriteOutput("", PlannedPage(*planned)) ? kExitClean : kExitError;
      return;
    }
    if (entry == nullptr) {
      if (const std::string about = RulesAbout(*rule); !about.empty()) {
        const std::string text = "No rule has this id. Rules about it:\n" + about;
        *status = WriteOutput("", text) ? kExitClean : kExitError;
        return;
      }
      const std::string near(rules::NearestRule(*rule));
      *status = Fail("no rule '" + *rule + "'" +
                     (near.empty() ? "; plumb rules lists them" : "; did you mean " + near + "?"));
      return;
    }
    *status = WriteOutput("", RulePage(*entry->info)) ? kExitClean : kExitError;
  });
}

}  // namespace plumbline::audit
