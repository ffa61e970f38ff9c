#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "audit/ledger/ledger_result.h"
#include "audit/ledger/words.h"
#include "audit/render/finding_text.h"
#include "audit/render/text_util.h"
#include "rules/engine/incidents.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostNext = 3, kMostName = 24;

std::string IntervalText(double ln, double variance) {
  const double wide = HalfInterval(variance);
  return absl::StrFormat("[%.3f, %.3f]", std::exp(ln - wide), std::exp(ln + wide));
}

std::string Flops(double flops) { return absl::StrFormat("%.3g", flops); }

class Text {
 public:
  Text(const LedgerResult& result, const TextStyle& style)
      : result_(result), style_(style), estimate_(result.estimate), ledger_(result.file.ledger) {}

  std::string Render() {
    Head();
    Table();
    Products();
    StackLines();
    Next();
    Assumptions();
    Findings();
    NotJudged();
    Counts();
    return std::move(out_);
  }

 private:
  void Line(const std::string& label, const std::string& text) {
    std::string head = "  " + label;
    head.resize(std::max<size_t>(head.size() + 1, 18), ' ');
    const size_t width = static_cast<size_t>(style_.width) - 18;
    bool first = true;
    for (const std::string& line : Wrap(Printable(text), width)) {
      out_ += (first ? head : std::string(18, ' ')) + line + "\n";
      first = false;
    }
  }

  void Heading(const char* text) { out_ += "\n" + Inked(style_, Ink::kBold, text) + "\n"; }

  size_t kept() const {
    return static_cast<size_t>(std::count_if(ledger_.multipliers.begin(), ledger_.multipliers.end(),
                                             [](const auto& m) { return m.kept; }));
  }

  void Head() {
    std::string text = absl::StrCat(
        Printable(result_.file.path), ": ", Plural(ledger_.multipliers.size(), "multiplier"), ", ",
        kept(), " kept",
        ledger_.tried ? absl::StrCat(", of ", *ledger_.tried, " tried") : std::string(),
        "; for a run of ", Flops(ledger_.target), " FLOPs");
    out_ += text + "\n\n";
  }

  // Returns the rules that name a multiplier, without their group.
  std::string Flags(const std::string& name) const {
    std::string flags;
    for (const v1::Finding* finding : result_.findings()) {
      if (finding->site().op() != name) continue;
      const std::string& rule = finding->rule();
      absl::StrAppend(&flags, flags.empty() ? "" : ", ", rule.substr(rule.find('/') + 1));
    }
    return flags;
  }

  void Table() {
    std::vector<std::vector<std::string>> rows = {
        {"multiplier", "claimed", "measured", "90 %", "expected", "largest", "pairs", "flags"}};
    for (size_t i = 0; i < ledger_.multipliers.size(); ++i) {
      const ledger::Multiplier& m = ledger_.multipliers[i];
      const ledger::MultiplierEstimate& e = estimate_.multipliers[i];
      std::string name = Printable(m.name);
      if (name.size() > kMostName) name = Printable(name.substr(0, kMostName - 3)) + "...";
      const std::string flags = Flags(m.name);
      rows.push_back({name, FactorText(std::log(m.claimed)), FactorText(e.worth.y),
                      IntervalText(e.worth.y, e.sd * e.sd), m.kept ? FactorText(e.s) : "not kept",
                      Flops(e.cells.back().flops), std::to_string(e.cells.back().pairs.size()),
                      flags});
    }
    out_ += TextColumns(rows, true);
    out_ += "\n";
  }

  void Products() {
    double claimed = 0;
    for (const ledger::Multiplier& m : ledger_.multipliers)
      claimed += m.kept ? std::log(m.claimed) : 0;
    const ledger::Product& p = estimate_.product;
    Line("product",
         absl::StrCat(FactorText(p.ln), " at 90 %: ", IntervalText(p.ln, p.seeds_variance),
                      " by seeds alone, ", IntervalText(p.ln, p.all_variance),
                      " with everything that does not average out; claimed ", FactorText(claimed)));
    if (p.factors > 0)
      Line("shared bias", absl::StrFormat("%.2f %% of loss, shared by all ablations, would alone "
                                          "explain the whole product",
                                          100 * p.shared_bias));
    if (std::find(result_.flagged.begin(), result_.flagged.end(), true) == result_.flagged.end())
      return;
    const ledger::Product& rest = result_.without_flagged;
    Line("less flagged",
         absl::StrCat(FactorText(rest.ln), " of ", Plural(rest.factors, "factor"),
                      " at 90 %: ", IntervalText(rest.ln, rest.seeds_variance), " by seeds alone, ",
                      IntervalText(rest.ln, rest.all_variance), " with all"));
  }

  void StackLines() {
    if (!estimate_.stack) {
      Line("stack", "not run: only the product is available");
      return;
    }
    const ledger::StackEstimate& s = *estimate_.stack;
    Line("stack", absl::StrCat(FactorText(s.ln), " at 90 %: ", IntervalText(s.ln, s.sd * s.sd),
                               " at ", Flops(s.flops), " FLOPs: the number to believe"));
    for (const ledger::Multiplier& m : ledger_.multipliers) {
      if (m.kept && Flags(m.name).find("evaluation-leak") != std::string::npos)
        Line("", "It includes the leaked data of " + m.name + ".");
    }
    for (const ledger::LeaveOutEstimate& l : s.leave_outs)
      Line("  without",
           absl::StrCat(l.name, ": ", FactorText(l.ln), " ", IntervalText(l.ln, l.sd * l.sd),
                        "; it can detect ", FactorText(l.detectable),
                        " in nine of ten cases, but may miss less"));
    if (!s.leave_outs.empty())
      Line("", "If a leave-out shows no effect, the change may still have one.");
  }

  static std::string NextText(const ledger::NextRuns& next) {
    std::string what;
    if (next.kind == ledger::NextRuns::Kind::kPair) what = "one more pair of " + next.name;
    if (next.kind == ledger::NextRuns::Kind::kBaseline) what = "one more baseline run";
    if (next.kind == ledger::NextRuns::Kind::kStack) what = "one more pair of the stack";
    const bool of_stack = next.kind == ledger::NextRuns::Kind::kStack;
    return absl::StrCat(
        what, " at ", Flops(next.scale), " FLOPs: standard deviation of ",
        of_stack ? "the stack" : "the product", " ",
        absl::StrFormat("%.4f to %.4f", std::sqrt(next.before), std::sqrt(next.after)), ", for ",
        Flops(next.flops), " FLOPs");
  }

  // Lists the best runs overall. Listing the best of each kind would hide that the second pair is
  // better than any baseline run.
  void Next() {
    if (result_.next.empty()) return;
    for (size_t i = 0; i < result_.next.size() && i < kMostNext; ++i)
      Line(i == 0 ? "next ablation" : "", NextText(result_.next[i]));
  }

  void Assumptions() {
    Heading("Assumptions");
    const ledger::Allowances& a = result_.allowances;
    Line("noise", absl::StrFormat("the loss of one run is known to %.3f %% (0.3 %% if nothing is "
                                  "known; %d degrees of freedom from pairs)",
                                  100 * estimate_.noise, estimate_.freedom));
    Line("baseline",
         absl::StrFormat("loss falls to %.3f nats with exponent %.4f; G = %.2f at %s "
                         "FLOPs, its curve is known to %.2f %%",
                         estimate_.baseline.floor, estimate_.baseline.alpha, estimate_.gain,
                         Flops(estimate_.largest_scale), 100 * estimate_.relative_error));
    Line("allowances",
         absl::StrFormat(
             "each change varies by %g per decade of scale (--allow-scale), all together by %g per "
             "decade up to the target (--allow-target); ablations share a bias of %g of ln loss at "
             "a small scale (--allow-small), %g at their largest (--allow-large)",
             a.scale, a.target, a.small, a.large));
    if (!ledger_.tried)
      Line("selection",
           "the number of tried changes is not declared ([ledger] tried): the kept ones are "
           "treated as those that looked good");
    Line("not known", "a bias that all ablations, scales and evaluation sets share");
  }

  void Findings() {
    const auto findings = result_.findings();
    if (findings.empty()) return;
    Heading("Findings");
    for (const rules::Incident& incident : rules::IncidentsOf(findings)) {
      IncidentSites sites{incident.findings.size(), {}, incident.fingerprint};
      for (const v1::Finding* finding : incident.findings)
        sites.named.push_back(Printable(finding->site().op()));
      out_ += RenderIncident(Named(incident), sites, style_) + "\n";
    }
  }

  // Puts the multiplier's name before the title, because a ledger has no steps and no site.
  static v1::Finding Named(const rules::Incident& incident) {
    v1::Finding shown = incident.shown();
    if (incident.findings.size() == 1 && !shown.site().op().empty())
      shown.set_title(shown.site().op() + ": " + shown.title());
    shown.clear_site();
    return shown;
  }

  void NotJudged() {
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> groups;
    for (const v1::Verdict& verdict : result_.verdicts) {
      if (verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE)
        groups[{verdict.rule(), verdict.reason()}].push_back(verdict.site().op());
    }
    if (groups.empty()) return;
    Heading("Inconclusive");
    for (const auto& [group, names] : groups) {
      std::string who;
      for (const std::string& name : names)
        absl::StrAppend(&who, who.empty() ? "" : ", ", name.empty() ? "the ledger" : name);
      out_ += "  " + group.first + "\n";
      const std::string text = who + ": " + group.second.substr(group.second.find(": ") + 2);
      for (const std::string& line : Wrap(Printable(text), static_cast<size_t>(style_.width) - 4))
        out_ += "    " + line + "\n";
    }
  }

  void Counts() {
    size_t levels[4] = {};
    for (const v1::Finding* finding : result_.findings())
      ++levels[std::clamp<int>(finding->level(), 0, 3)];
    const size_t all = result_.findings().size();
    size_t inconclusive = 0;
    for (const v1::Verdict& verdict : result_.verdicts)
      inconclusive += verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE ? 1 : 0;
    std::string by;
    const auto add = [&by](size_t n, const char* name) {
      if (n > 0) absl::StrAppend(&by, by.empty() ? " (" : ", ", Plural(n, name));
    };
    add(levels[v1::LEVEL_ERROR], "error");
    add(levels[v1::LEVEL_WARNING], "warning");
    add(levels[v1::LEVEL_NOTE], "note");
    absl::StrAppend(&out_, "\n", Plural(all, "finding"), by, by.empty() ? "" : ")", ", ",
                    result_.verdicts.size() - inconclusive, " judged, ", inconclusive,
                    " inconclusive\n");
  }

  const LedgerResult& result_;
  const TextStyle& style_;
  const ledger::Estimate& estimate_;
  const ledger::Ledger& ledger_;
  std::string out_;
};

}  // namespace

std::string LedgerText(const LedgerResult& result, const TextStyle& style) {
  return Text(result, style).Render();
}

}  // namespace plumbline::audit
