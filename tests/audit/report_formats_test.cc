// Reports as HTML and SARIF, and text lines with plots: names from a trainer have no effect in
// them, and plots show the values as given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "audit/render/ci_report.h"
#include "audit/render/file_uri.h"
#include "audit/render/html_report.h"
#include "audit/render/html_style.h"
#include "audit/render/html_text.h"
#include "audit/render/sarif_report.h"
#include "audit/render/series_plot.h"
#include "audit/render/sparkline.h"
#include "audit/render/text_report.h"
#include "tests/support/batches.h"

namespace plumbline::audit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Each text tries to break out of an element, an attribute, a comment, a script, a terminal or
// UTF-8.
const std::vector<std::string> kHostile = {"<script>alert(1)</script>",
                                           "\"><img src=x onerror=alert(1)>",
                                           "' onmouseover='alert(1)",
                                           "--><svg onload=alert(1)>",
                                           "</style><script src=//evil>",
                                           "&lt;b&gt; &amp; &#60;",
                                           "\x1b[2J\x07",
                                           "\xff\xfe\x80",
                                           "a\u202eb",
                                           "javascript:alert(1)",
                                           "[click](http://evil) {0} {{1}}",
                                           "\u2028\u2029 ${x} `y`"};

struct Shape {
  std::string text = "loss";
  double spike = 9;
};

// A run with a loss that jumps at step 60, and a finding on it with the hostile words.
AuditResult Result(const Shape& shape) {
  AuditResult result;
  auto columns = std::make_shared<rules::SeriesColumns>();
  columns->sites.emplace_back().set_op(shape.text);
  for (int64_t s = 0; s < 100; ++s) {
    const double value = s == 60 ? shape.spike : 2 + 0.001 * static_cast<double>(s % 7);
    const rules::SeriesRow row{0, &value, nullptr, 0};
    rules::StepSeries step;
    step.run = shape.text;
    step.role = v1::ROLE_TRAINER;
    step.step = s;
    step.columns = columns;
    step.rows = {&row, 1};
    result.series.Take(step);
  }
  v1::Verdict verdict;
  verdict.set_rule("causality/moe-future-leak");
  verdict.set_kind(v1::Verdict::KIND_FINDING);
  v1::FindingSite& site = *verdict.mutable_site();
  site.set_run(shape.text);
  site.set_layer("layers/" + shape.text);
  site.set_op(shape.text);
  site.set_step_first(60);
  site.set_step_last(61);
  v1::Finding& finding = *verdict.mutable_finding();
  finding.set_rule(verdict.rule());
  finding.set_level(v1::LEVEL_ERROR);
  finding.set_strength(v1::STRENGTH_PROVED);
  for (auto* text : {finding.mutable_title(), finding.mutable_explanation(), finding.mutable_fix()})
    *text = shape.text;
  *finding.mutable_site() = site;
  finding.mutable_cause()->set_id(shape.text);
  finding.mutable_measured()->set_name(shape.text);
  finding.mutable_measured()->set_value(std::nan(""));
  finding.add_assumptions(shape.text);
  (*finding.mutable_witness()->mutable_fields())[shape.text].set_string_value(shape.text);
  (*finding.mutable_details()->mutable_fields())["series"].set_string_value(shape.text);
  (*finding.mutable_details()->mutable_fields())["step"].set_number_value(60);
  finding.set_fingerprint("00112233445566778899aabbccddeeff");
  result.report.Add(verdict);
  finding.mutable_site()->set_layer("second");
  *verdict.mutable_site() = finding.site();
  finding.set_fingerprint("10112233445566778899aabbccddeeff");
  result.report.Add(verdict);
  verdict.set_kind(v1::Verdict::KIND_INCONCLUSIVE);
  verdict.set_reason(shape.text + ": " + shape.text);
  result.report.Add(verdict);
  verdict.set_kind(v1::Verdict::KIND_PASS);
  verdict.add_assumptions(shape.text);
  result.report.Add(verdict);
  InputReport& input = result.inputs.emplace_back();
  input.path = "runs/" + shape.text;
  input.format = "run-record";
  input.Add(7, "expected " + shape.text);
  result.coverage = {2, 1, 0};
  return result;
}

// ---- HTML --------------------------------------------------------------------------------------

// Elements and attributes of the page; all others came from outside.
void CheckMarkup(const std::string& page) {
  static const std::set<std::string> kElements = {
      "script",   "html", "head",       "meta",    "title",   "style", "body",  "main",
      "h1",       "h2",   "h3",         "p",       "article", "span",  "code",  "pre",
      "dl",       "dt",   "dd",         "figure",  "svg",     "path",  "text",  "polygon",
      "polyline", "line", "figcaption", "details", "summary", "table", "thead", "tbody",
      "tr",       "th",   "td",         "ul",      "li"};
  static const std::set<std::string> kEmpty = {"meta", "path", "polygon", "polyline", "line"};
  static const std::set<std::string> kAttributes = {
      "id",    "media", "type",    "lang", "charset",    "http-equiv", "content", "name",
      "class", "scope", "viewBox", "role", "aria-label", "d",          "points",  "x",
      "y",     "x1",    "x2",      "y1",   "y2",         "text-anchor"};
  std::vector<std::string> open;
  size_t at = page.find("<html");
  ASSERT_EQ(page.substr(0, at), "<!doctype html>\n");
  static const std::regex kTag(R"re(^</?([a-z0-9]+)((?: [a-zA-Z0-9-]+="[^"<>]*")*) ?/?>)re");
  static const std::regex kAttribute(R"re( ([a-zA-Z0-9-]+)=")re");
  while ((at = page.find('<', at)) != std::string::npos) {
    // The content of these ends at the first end tag.
    for (const std::string raw : {"style", "script"}) {
      if (!open.empty() && open.back() == raw) at = page.find("</" + raw + ">", at);
    }
    std::smatch tag;
    const std::string rest = page.substr(at, page.find('>', at) + 1 - at);
    ASSERT_TRUE(std::regex_search(rest, tag, kTag)) << page.substr(at, 80);
    const std::string name = tag[1];
    ASSERT_TRUE(kElements.count(name)) << rest;
    const std::string attributes = tag[2];
    for (std::sregex_iterator a(attributes.begin(), attributes.end(), kAttribute), end; a != end;
         ++a)
      ASSERT_TRUE(kAttributes.count((*a)[1])) << rest;
    if (rest[1] == '/') {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), name) << page.substr(at, 80);
      open.pop_back();
    } else if (!kEmpty.count(name)) {
      open.push_back(name);
    }
    ++at;
  }
  EXPECT_TRUE(open.empty());
}

// The page as it reads without scripts. The data of its script are also checked: they can neither
// end their element nor begin another one.
std::string WithoutScripts(std::string page) {
  for (size_t at; (at = page.find("<script")) != std::string::npos;) {
    const size_t begin = page.find('>', at) + 1, end = page.find("</script>", begin);
    if (page.compare(at, 13, "<script type=") == 0) {
      const std::string data = page.substr(begin, end - begin);
      EXPECT_EQ(data.find_first_of("<>&"), std::string::npos);
      EXPECT_TRUE(nlohmann::json::accept(data));
    }
    page.erase(at, end + 9 - at);
  }
  return page;
}

TEST(HtmlReport, ForeignTextIsTextAndNothingElse) {
  for (const std::string& text : kHostile) {
    const std::string whole = RenderHtml(Result({text}));
    CheckMarkup(whole);
    const std::string page = WithoutScripts(whole);
    EXPECT_THAT(page, HasSubstr(HtmlText(text)));
    for (const char* part : {"<script", "<img", "\x1b", "\u202e", "\xff"})
      EXPECT_THAT(page, Not(HasSubstr(part))) << text;
  }
}

TEST(HtmlReport, StatesWhatThereIs) {
  const std::string whole = RenderHtml(Result({}));
  const std::string page = WithoutScripts(whole);
  for (const char* part :
       {"Content-Security-Policy", "2 findings (2 errors) in 1 incident", "moe-future-leak",
        "2 sites in incident", "<polyline", "class=\"onset\"", "step 60", "<h2>Inconclusive</h2>",
        "<details>", "<th scope=\"col\">", "refused: ", "prefers-color-scheme: dark"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr("http:")));
  EXPECT_THAT(page, Not(HasSubstr("https:")));
  EXPECT_EQ(whole, RenderHtml(Result({}))) << "the same bytes";
  CheckMarkup(RenderHtml(AuditResult()));
}

// A loss without a finding is drawn once; a loss with a finding is drawn at the finding.
TEST(HtmlReport, LossesWithoutAFinding) {
  AuditResult result = Result({});
  EXPECT_THAT(RenderHtml(result), Not(HasSubstr("<h2>Losses</h2>")));
  AuditResult healthy;
  healthy.series = result.series;
  EXPECT_THAT(RenderHtml(healthy), HasSubstr("<h2>Losses</h2>"));
}

double Luminance(const std::string& hex) {
  double sum = 0;
  const double weights[] = {0.2126, 0.7152, 0.0722};
  for (size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(hex.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    sum += weights[i] * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
  }
  return sum;
}

double Contrast(const std::string& a, const std::string& b) {
  const double x = Luminance(a), y = Luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

TEST(HtmlReport, CanBeReadInLightAndDark) {
  const std::string style = kHtmlStyle;
  const size_t dark = style.find("@media (prefers-color-scheme: dark)");
  ASSERT_NE(dark, std::string::npos);
  for (const std::string& part : {style.substr(0, dark), style.substr(dark)}) {
    std::map<std::string, std::string> colours;
    const std::regex colour(R"re(--([a-z]+): (#[0-9a-f]{6}))re");
    for (std::sregex_iterator at(part.begin(), part.end(), colour), end; at != end; ++at)
      colours[(*at)[1]] = (*at)[2];
    ASSERT_EQ(colours.size(), 10u);
    for (const char* back : {"back", "box"}) {
      for (const char* ink : {"text", "dim", "error", "warning", "note", "good"})
        EXPECT_GE(Contrast(colours[ink], colours[back]), 4.5) << ink << " on " << back;
      EXPECT_GE(Contrast(colours["plot"], colours[back]), 3.0);
    }
  }
}

TEST(SeriesPlot, IsBoundedWhateverTheSeries) {
  for (const double spike : std::vector<double>{9.0, 1e308, -1e308, INFINITY, NAN}) {
    Shape shape;
    shape.spike = spike;
    const std::string svg = SeriesSvg(Result(shape).series.series()[0], 60);
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
    EXPECT_LT(svg.size(), 60'000u);
    EXPECT_EQ(svg.find("nonfinite") != std::string::npos, !std::isfinite(spike));
  }
  EXPECT_EQ(SeriesSvg(CollectedSeries(), 0), "");
}

// ---- SARIF -------------------------------------------------------------------------------------

nlohmann::json Log(const AuditResult& result, int status = 1) {
  return nlohmann::json::parse(RenderSarif(result, status, "/data/folder"));
}

TEST(SarifReport, StatesWhatTheReportStates) {
  AuditResult result = Result({});
  const auto run = Log(result)["runs"][0];
  ASSERT_EQ(run["results"].size(), 2u);
  const auto& first = run["results"][0];
  EXPECT_EQ(first["ruleId"], "causality/moe-future-leak");
  const auto& rule = run["tool"]["driver"]["rules"][first["ruleIndex"].get<size_t>()];
  EXPECT_EQ(rule["id"], first["ruleId"]);
  EXPECT_THAT(rule["help"]["markdown"].get<std::string>(),
              HasSubstr("# causality/moe-future-leak"));
  EXPECT_EQ(rule["defaultConfiguration"]["level"], "error");
  EXPECT_EQ(first["level"], "error");
  EXPECT_EQ(first["partialFingerprints"]["plumbline/v1"], "00112233445566778899aabbccddeeff");
  EXPECT_EQ(first["properties"]["strength"], "proved");
  EXPECT_EQ(first["properties"]["measured"]["value"], "nan");
  EXPECT_EQ(first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "runs/loss");
  EXPECT_EQ(first["locations"][0]["logicalLocations"][1]["fullyQualifiedName"], "layers/loss/loss");
  EXPECT_FALSE(first.contains("suppressions"));
  EXPECT_FALSE(first.contains("baselineState"));
  const auto& invocation = run["invocations"][0];
  EXPECT_EQ(invocation["exitCode"], 1);
  EXPECT_EQ(invocation["executionSuccessful"], false);
  EXPECT_THAT(invocation["toolExecutionNotifications"][0]["message"]["text"].get<std::string>(),
              HasSubstr("byte 7: expected loss"));
  EXPECT_EQ(run["properties"]["judged"], 2);
}

TEST(SarifReport, SuppressionsAndBaseline) {
  AuditResult result = Result({});
  v1::Verdict known;
  known.set_rule("a/b");
  known.set_kind(v1::Verdict::KIND_FINDING);
  known.mutable_finding()->set_rule("a/b");
  known.mutable_finding()->set_suppressed(true);
  known.mutable_finding()->set_fingerprint("ff");
  result.report.Add(known);
  rules::Suppression entry;
  entry.rule = "a/*";
  entry.reason = "known; ISSUE-12";
  entry.expires = 20'000;
  result.suppressions = {entry};
  result.selection.baseline = Baseline();
  const auto results = Log(result)["runs"][0]["results"];
  ASSERT_EQ(results.size(), 3u);
  for (const auto& one : results) {
    EXPECT_EQ(one["baselineState"], "new");
    if (one["ruleId"] == "a/b") {
      EXPECT_EQ(one["suppressions"][0]["kind"], "external");
      EXPECT_EQ(one["suppressions"][0]["justification"], "known; ISSUE-12");
    } else {
      EXPECT_EQ(one["suppressions"].size(), 0u) << "if one result has the property, all have it";
    }
  }
}

// No place for an argument, and no link: viewers would insert those.
TEST(SarifReport, ForeignTextIsNoPlaceAndNoLink) {
  for (const std::string& text : kHostile) {
    const std::string log = RenderSarif(Result({text}), 1, "/data/folder");
    const auto run = nlohmann::json::parse(log)["runs"][0];
    for (const auto& result : run["results"]) {
      std::string message = result["message"]["text"];
      EXPECT_THAT(message, Not(HasSubstr("](")));
      message = std::regex_replace(message, std::regex(R"(\{\{|\}\})"), "");
      EXPECT_EQ(message.find_first_of("{}"), std::string::npos) << message;
      const std::string uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
      EXPECT_TRUE(std::regex_match(uri, std::regex("[A-Za-z0-9._~/%-]+"))) << uri;
    }
    EXPECT_THAT(log, Not(HasSubstr("\x1b")));
  }
}

TEST(FileUri, BelowTheFolderRelativeOtherwiseWhole) {
  EXPECT_EQ(FileUri("runs/a b.jsonl", "/data"), "runs/a%20b.jsonl");
  EXPECT_EQ(FileUri("./runs//x", "/data"), "runs/x");
  EXPECT_EQ(FileUri("/data/runs/x", "/data"), "runs/x");
  EXPECT_EQ(FileUri("/other/x", "/data"), "file:///other/x");
  EXPECT_EQ(FileUri("../x", "/data/a"), "file:///data/x");
  EXPECT_EQ(FileUri("a:b?c#d%\xff", "/data"), "a%3Ab%3Fc%23d%25%FF");
}

// ---- Sparklines --------------------------------------------------------------------------------

CollectedSeries SeriesOf(const std::vector<double>& values, int64_t first = 0) {
  SeriesCollector collector;
  auto columns = std::make_shared<rules::SeriesColumns>();
  columns->sites.emplace_back().set_op("loss");
  for (size_t i = 0; i < values.size(); ++i) {
    const rules::SeriesRow row{0, &values[i], nullptr, 0};
    rules::StepSeries step;
    step.step = first + static_cast<int64_t>(i);
    step.columns = columns;
    step.rows = {&row, 1};
    collector.Take(step);
  }
  return collector.series().at(0);
}

TextStyle Unicode(int width = 100) {
  TextStyle style;
  style.unicode = true;
  style.width = width;
  return style;
}

TEST(Sparkline, DrawsMarksAndLabels) {
  const CollectedSeries series = SeriesOf({0, 1, 2, 3, 4, 5, 6, 7, 0}, 10);
  EXPECT_EQ(SparklineText(series, 12, Unicode()),
            "  series     loss, steps 10-18, min 0, max 7\n"
            "             ▁▂▃▄▅▆▇█▁\n"
            "               ^ step 12\n");
  EXPECT_EQ(SparklineText(series, 18, TextStyle{}),
            "  series     loss, steps 10-18, min 0, max 7\n"
            "             _.:-=+*#_\n"
            "             step 18 ^\n");
  EXPECT_EQ(SparklineText(SeriesOf({3}), 0, Unicode()),
            "  series     loss, steps 0-0, min 3, max 3\n"
            "             ▅\n"
            "             ^ step 0\n");
  EXPECT_THAT(SparklineText(SeriesOf({1, NAN, 2}), 1, Unicode()), HasSubstr("▁!█"));
  EXPECT_THAT(SparklineText(SeriesOf({NAN}), 0, Unicode()), HasSubstr("no finite value"));
  EXPECT_EQ(SparklineText(CollectedSeries(), 0, Unicode()), "");
}

// A spike or a dip of one step is visible in a long series, under the mark, within the width.
TEST(Sparkline, LosesNoExtremeAndKeepsItsWidth) {
  std::mt19937 random(5);
  for (const size_t length : {71u, 72u, 73u, 511u, 513u, 5000u, 30'000u}) {
    for (const double extreme : {50.0, -50.0}) {
      std::vector<double> values(length, 2.0);
      const size_t at = random() % length;
      values[at] = extreme;
      for (const int width : {40, 80, 200}) {
        const CollectedSeries series = SeriesOf(values);
        const std::string text =
            SparklineText(series, static_cast<int64_t>(at), TextStyle{false, width, false});
        std::vector<std::string> lines;
        for (size_t begin = 0; begin < text.size();) {
          const size_t end = text.find('\n', begin);
          lines.push_back(text.substr(begin, end - begin));
          EXPECT_LE(lines.back().size(), static_cast<size_t>(width));
          begin = end + 1;
        }
        ASSERT_GE(lines.size(), 3u);
        const std::string& drawn = lines[lines.size() - 2];
        const size_t mark = lines.back().find('^');
        EXPECT_EQ(drawn[mark], extreme > 0 ? '#' : '_') << length << "\n" << text;
        EXPECT_EQ(std::count(drawn.begin(), drawn.end(), drawn[mark]), 1) << text;
      }
    }
  }
}

TEST(Sparkline, StepsFarApartHaveColumns) {
  SparkColumns columns;
  columns.step_first = INT64_MIN;
  columns.step_last = INT64_MAX;
  columns.columns.resize(72);
  EXPECT_EQ(columns.ColumnOf(INT64_MIN), 0u);
  EXPECT_EQ(columns.ColumnOf(0), 36u);
  EXPECT_EQ(columns.ColumnOf(INT64_MAX), 71u);
}

TEST(TextReport, ASparklineUnderTheFindingAndWhatWasLeftOut) {
  AuditResult result = Result({});
  const std::string text = RenderText(result, Unicode());
  EXPECT_THAT(text, HasSubstr("series     loss, steps 0-99, min 2, max 9\n"));
  EXPECT_EQ(text.find("series     loss"), text.rfind("series     loss")) << "once an incident";
  result.selection.since = 1000;
  EXPECT_THAT(
      RenderText(result, Unicode()),
      HasSubstr("2 findings not shown: ended before step 1000\n0 findings; 1 of 1 rule judged"));
}

// ---- continuous integration --------------------------------------------------------------------

TEST(CiReports, HostileTextStaysText) {
  for (const std::string& text : kHostile) {
    const AuditResult result = Result({.text = text});
    const std::string junit = RenderJunit(result, v1::LEVEL_ERROR);
    static const std::regex kTags(
        R"re(<\?xml [^<>]*\?>|</?(testsuite|testcase|failure|error|skipped)( [a-z]+="[^"<>]*")*/?>)re");
    EXPECT_EQ(std::regex_replace(junit, kTags, "").find_first_of("<>"), std::string::npos) << junit;
    EXPECT_THAT(junit, Not(HasSubstr("\x1b"))) << text;
    EXPECT_THAT(junit, HasSubstr("<failure type=\"error\""));
    const std::string markdown = RenderMarkdown(result);
    EXPECT_THAT(markdown, Not(HasSubstr("<script"))) << text;
    EXPECT_THAT(markdown, Not(HasSubstr("[click]("))) << text;
    const std::string github = RenderGithub(result);
    size_t commands = 0;
    std::istringstream lines(github);
    for (std::string line; std::getline(lines, line);) commands += line.starts_with("::") ? 1 : 0;
    EXPECT_EQ(commands, 2u) << github << " (an incident and an input)";
  }
}

TEST(CiReports, OneIncidentIsOneEntry) {
  const AuditResult result = Result({});
  const std::string junit = RenderJunit(result, v1::LEVEL_ERROR);
  EXPECT_THAT(junit, HasSubstr("tests=\"2\" failures=\"1\" errors=\"1\" skipped=\"0\""));
  EXPECT_THAT(junit, HasSubstr("name=\"causality/moe-future-leak\""));
  EXPECT_THAT(junit, HasSubstr("and 1 more site"));
  EXPECT_THAT(RenderMarkdown(result), HasSubstr("| error | loss | causality/moe-future-leak |"));
  EXPECT_THAT(RenderGithub(result),
              HasSubstr("::error title=causality/moe-future-leak::loss at layers/loss loss"));
}

v1::Verdict FoundBy(const std::string& rule, const std::string& layer, const std::string& op) {
  v1::Verdict verdict;
  verdict.set_kind(v1::Verdict::KIND_FINDING);
  verdict.set_rule(rule);
  v1::Finding& finding = *verdict.mutable_finding();
  finding.set_rule(rule);
  finding.set_level(v1::LEVEL_ERROR);
  finding.set_strength(v1::STRENGTH_PROVED);
  finding.set_title("NaN");
  finding.set_fingerprint(rule);
  v1::FindingSite& site = *finding.mutable_site();
  site.set_layer(layer);
  site.set_op(op);
  site.set_step_first(30);
  site.set_step_last(30);
  site.add_ranks(0);
  *verdict.mutable_site() = site;
  return verdict;
}

// A rule whose only finding is a symptom did not pass.
TEST(CiReports, ASymptomIsNoPassAndAnAnnotationHasItsLine) {
  AuditResult result;
  v1::Verdict root = FoundBy("precision/non-finite", "blocks.1", "weight");
  root.mutable_finding()->mutable_site()->set_file(std::filesystem::current_path().string() +
                                                   "/src/a,b.py");
  root.mutable_finding()->mutable_site()->set_line(57);
  result.report.Add(root);
  result.report.Add(FoundBy("health/loss-non-finite", "", "loss"));
  const std::string junit = RenderJunit(result, v1::LEVEL_ERROR);
  EXPECT_THAT(junit, HasSubstr("tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"1\""));
  EXPECT_THAT(junit, HasSubstr("name=\"health/loss-non-finite\">\n    <skipped message=\"a "
                               "symptom of precision/non-finite\"/>"));
  EXPECT_THAT(RenderGithub(result),
              HasSubstr("::error file=src/a%2Cb.py,line=57,title=precision/non-finite::NaN"));
}

}  // namespace
}  // namespace plumbline::audit
