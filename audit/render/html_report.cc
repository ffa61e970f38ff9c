#include "audit/render/html_report.h"

#include <set>

#include "audit/render/bottleneck.h"
#include "audit/render/finding_text.h"
#include "audit/render/html_style.h"
#include "audit/render/html_text.h"
#include "audit/render/page_data.h"
#include "audit/render/report_page.h"
#include "audit/render/series_plot.h"
#include "audit/render/text_util.h"
#include "audit/render/verdict_groups.h"
#include "base/version/build_version.h"
#include "rules/engine/incidents.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostPlots = 100;        // for all findings; each has about 30 KB
constexpr size_t kMostOfIncident = 4;     // plots per incident
constexpr size_t kMostLosses = 8;         // plots of losses without a finding
constexpr size_t kMostSitesListed = 500;  // per incident

std::string Element(const char* name, const char* attributes, const std::string& inner) {
  return std::string("<") + name + attributes + ">" + inner + "</" + name + ">\n";
}

std::string Cell(const std::string& text) { return "<td>" + HtmlText(text) + "</td>"; }

std::string NumberCell(uint64_t value) {
  return "<td class=\"number\">" + std::to_string(value) + "</td>";
}

std::string Header(const std::vector<const char*>& columns) {
  std::string out = "<thead><tr>";
  for (const char* column : columns) out += std::string("<th scope=\"col\">") + column + "</th>";
  return out + "</tr></thead>\n";
}

class HtmlPage {
 public:
  explicit HtmlPage(const AuditResult& result)
      : result_(result), incidents_(rules::IncidentsOf(result.findings())) {}

  std::string Render() {
    std::string body = Summary();
    body += Findings();
    body += Losses();  // losses that are not in the plot of a finding
    body += Inputs();
    body += Groups("Inconclusive", InconclusiveGroups(result_), result_.coverage.inconclusive);
    body += Groups("Passed", PassedGroups(result_), std::nullopt);
    // Without a script the plain form is shown; the page's script replaces it with its views.
    const ReportPage* page = BundledReportPage();
    std::string policy = "default-src 'none'; style-src 'unsafe-inline'", script;
    if (page != nullptr) {
      policy += "; script-src '" + std::string(page->digest) + "'";
      script = "<script type=\"application/json\" id=\"report\">" + PageData(result_) +
               "</script>\n<script>" + std::string(page->script) + "</script>\n";
    }
    return std::string("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n") +
           "<meta http-equiv=\"Content-Security-Policy\" content=\"" + policy +
           "\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
           "<meta name=\"referrer\" content=\"no-referrer\">\n" +
           Element("title", "",
                   HtmlText(ReportTitle(result_)) +
                       " – Plumbline report: " + HtmlText(SummaryText(result_))) +
           "<style id=\"plain-style\">" + kHtmlStyle + "</style>\n" +
           (page == nullptr ? ""
                            : "<style id=\"page-style\" media=\"not all\">" +
                                  std::string(page->style) + "</style>\n") +
           "</head>\n<body>\n" + Element("main", "", body) + script + "</body>\n</html>\n";
  }

 private:
  std::string Summary() const {
    std::string out = Element("h1", "", "Plumbline report " + HtmlText(ReportTitle(result_))) +
                      Element("p", "", HtmlText(SummaryText(result_)));
    const std::string left_out = LeftOutText(result_);
    if (!left_out.empty()) out += Element("p", " class=\"dim\"", HtmlText(left_out));
    const std::string bottleneck = BottleneckLineOf(result_);
    if (!bottleneck.empty()) out += Element("p", "", HtmlText(bottleneck));
    return out + Element("p", " class=\"dim\"", "plumb " + HtmlText(BuildVersion()));
  }

  std::string Findings() {
    std::string out = Element("h2", "", "Incidents");
    if (incidents_.empty()) return out + Element("p", "", "None.");
    for (const rules::Incident& incident : incidents_) out += Article(incident);
    return out;
  }

  std::string Article(const rules::Incident& incident) {
    const v1::Finding& shown = incident.shown();
    const std::string level(LevelName(shown.level()));
    std::string out = "<article class=\"" + HtmlText(level) + "\">\n<h3><span class=\"level " +
                      HtmlText(level) + "\">" + HtmlText(level) + "</span> " +
                      HtmlText(shown.title()) + "</h3>\n";
    std::string place = "<code>" + HtmlText(shown.rule()) + "</code> ";
    place += HtmlText(PlaceText(shown));
    if (shown.suppressed()) place += " (suppressed)";
    out += Element("p", " class=\"dim\"", place);
    out += Lines(shown);
    out += SymptomsOf(incident) + PlotsOf(incident) + SitesOf(incident);
    return out + "</article>\n";
  }

  static std::string SymptomsOf(const rules::Incident& incident) {
    std::string out;
    for (const rules::Incident& symptom : incident.symptoms)
      out += Element("li", "", HtmlText(SymptomText(symptom.shown())));
    return out.empty() ? out
                       : Element("p", "", "The same fault shows as:") + Element("ul", "", out);
  }

  static std::string Lines(const v1::Finding& finding) {
    std::string out;
    for (const FindingLine& line : FindingLines(finding)) {
      if (line.text.empty()) continue;
      out += Element("dt", "", HtmlText(line.label)) + Element("dd", "", HtmlText(line.text));
    }
    return Element("dl", "", out);
  }

  std::string PlotsOf(const rules::Incident& incident) {
    std::string out;
    size_t drawn = 0;
    for (const v1::Finding* finding : incident.findings) {
      const CollectedSeries* series = result_.series.Find(*finding);
      if (series == nullptr || plotted_.size() >= kMostPlots || drawn >= kMostOfIncident) continue;
      if (!in_incident_.insert({&incident, series}).second) continue;
      ++drawn;
      plotted_.insert(series);
      out += Figure(*series, OnsetOf(*finding));
    }
    return out;
  }

  static std::string Figure(const CollectedSeries& series, std::optional<int64_t> onset) {
    const std::string svg = SeriesSvg(series, onset);
    if (svg.empty()) return "";
    std::string caption = series.Name();
    if (!series.run.empty()) caption += ", run " + series.run;
    return Element("figure", "", svg + Element("figcaption", "", HtmlText(caption)));
  }

  // Lists the other findings of the incident.
  static std::string SitesOf(const rules::Incident& incident) {
    if (incident.findings.size() < 2) return "";
    std::string rows;
    for (size_t i = 0; i < incident.findings.size() && i < kMostSitesListed; ++i) {
      const v1::Finding& finding = *incident.findings[i];
      rows += "<tr>" + Cell(PlaceText(finding)) + Cell(std::string(LevelName(finding.level()))) +
              Cell(std::string(StrengthName(finding.strength()))) + "<td><code>" +
              HtmlText(finding.fingerprint()) + "</code></td></tr>\n";
    }
    std::string inner =
        Element("summary", "",
                HtmlText(Plural(incident.findings.size(), "site")) + " in incident <code>" +
                    HtmlText(incident.fingerprint) + "</code>") +
        Element("table", "",
                Header({"site", "level", "strength", "finding"}) + Element("tbody", "", rows));
    if (incident.findings.size() > kMostSitesListed) {
      inner += Element("p", "",
                       std::to_string(incident.findings.size() - kMostSitesListed) +
                           " more are in the JSON report.");
    }
    return Element("details", "", inner);
  }

  std::string Losses() const {
    std::string out;
    size_t drawn = 0;
    for (const CollectedSeries& series : result_.series.series()) {
      if (!ReadsAsLoss(series.op) || series.buckets.empty() || plotted_.contains(&series)) continue;
      if (drawn++ == kMostLosses) break;
      out += Figure(series, std::nullopt);
    }
    return out.empty() ? out : Element("h2", "", "Losses") + out;
  }

  std::string Inputs() const {
    std::string rows;
    for (const InputReport& input : result_.inputs) {
      std::string problems;
      for (const Problem& problem : input.problems) {
        problems += Element(
            "li", "",
            std::string(problem.error ? "refused: " : "noted: ") + HtmlText(input.Line(problem)));
      }
      for (const std::string& note : input.notes)
        problems += Element("li", "", "noted: " + HtmlText(note));
      if (!problems.empty()) problems = Element("ul", "", problems);
      rows += "<tr>" + Cell(input.path) + Cell(input.format) + NumberCell(input.bytes) +
              NumberCell(input.records) + "<td>" + problems + "</td></tr>\n";
    }
    return Element("h2", "", "Inputs") +
           Element("table", "",
                   Header({"path", "format", "bytes", "records", "problems"}) +
                       Element("tbody", "", rows));
  }

  static std::string Groups(const char* title, const std::vector<VerdictGroup>& groups,
                            std::optional<uint64_t> count) {
    if (groups.empty()) return "";
    std::string rows;
    for (const VerdictGroup& group : groups) {
      rows += "<tr><td><code>" + HtmlText(group.rule) + "</code></td>" + Cell(group.words) +
              Cell(SitesText(group.sites)) + "</tr>\n";
    }
    const std::string number = count ? Plural(*count, "verdict") : Plural(groups.size(), "line");
    return Element("h2", "", title) +
           Element("details", "",
                   Element("summary", "", HtmlText(number)) +
                       Element("table", "",
                               Header({"rule", "words", "sites"}) + Element("tbody", "", rows)));
  }

  const AuditResult& result_;
  const std::vector<rules::Incident> incidents_;
  std::set<const CollectedSeries*> plotted_;
  std::set<std::pair<const rules::Incident*, const CollectedSeries*>> in_incident_;
};

}  // namespace

std::string RenderHtml(const AuditResult& result) { return HtmlPage(result).Render(); }

}  // namespace plumbline::audit
