// plumb query series.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "audit/live/answers.h"
#include "audit/live/caught_up.h"
#include "audit/live/client.h"
#include "audit/live/live.h"
#include "audit/live/output.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {
namespace {

constexpr uint64_t kTextCells = 2000;  // larger answers need --format json or csv

std::string NameOf(const v1::Site& site) {
  return site.layer().empty() ? site.op() : absl::StrCat(site.layer(), "/", site.op());
}

const char* RoleName(v1::Role role) { return role == v1::ROLE_ROLLOUT ? "rollout" : "trainer"; }

std::string JsonNumber(double value) {
  const std::string text = ExactNumber(value);
  return text == "nan" || text == "inf" || text == "-inf" ? "\"" + text + "\"" : text;
}

std::string CsvText(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

// The cells of one answer, row by row.
class Cells {
 public:
  explicit Cells(const v1::SeriesColumns& columns) : c_(columns) {}

  int rows() const { return reduced() && c_.rank().empty() ? 1 : c_.rank_size(); }
  int buckets() const { return c_.step_size(); }
  int At(int row, int bucket) const { return row * buckets() + bucket; }
  bool reduced() const { return !c_.count().empty() || c_.bucket_steps() > 1; }
  bool Absent(int i) const {
    const auto byte = static_cast<size_t>(i) / 8;
    return byte < c_.absent().size() &&
           (static_cast<unsigned char>(c_.absent()[byte]) >> (i % 8) & 1) != 0;
  }
  std::string RankText(int row) const {
    return c_.rank().empty() ? "" : absl::StrCat(c_.rank(row));
  }
  uint32_t Attempt(int bucket) const {
    if (c_.attempt().empty()) return 0;
    return c_.attempt(c_.attempt_size() == 1 ? 0 : bucket);
  }
  uint32_t NonFinite(int i) const { return c_.non_finite().empty() ? 0 : c_.non_finite(i); }
  // Returns true if each column has the number of elements that the answer's lists state.
  bool Whole() const {
    const int cells = rows() * buckets();
    return c_.mean_size() == cells &&
           (!reduced() ||
            (c_.min_size() == cells && c_.max_size() == cells && c_.count_size() == cells &&
             (c_.non_finite().empty() || c_.non_finite_size() == cells))) &&
           (c_.attempt_size() <= 1 || c_.attempt_size() == buckets());
  }

 private:
  const v1::SeriesColumns& c_;
};

std::string CsvOf(const v1::SeriesColumns& c) {
  const Cells cells(c);
  std::string out;
  for (int row = 0; row < cells.rows(); ++row) {
    for (int b = 0; b < cells.buckets(); ++b) {
      const int i = cells.At(row, b);
      if (cells.Absent(i)) continue;
      absl::StrAppend(&out, CsvText(Printable(NameOf(c.site()))), ",", RoleName(c.role()), ",",
                      cells.Attempt(b), ",", cells.RankText(row), ",", c.step(b), ",",
                      c.bucket_steps(), ",", ExactNumber(c.mean(i)));
      if (cells.reduced()) {
        absl::StrAppend(&out, ",", ExactNumber(c.min(i)), ",", ExactNumber(c.max(i)), ",",
                        c.count(i), ",", cells.NonFinite(i), "\n");
      } else {
        absl::StrAppend(&out, ",,,,\n");
      }
    }
  }
  return out;
}

template <typename CellText>
std::string Matrix(const Cells& cells, CellText text) {
  std::string out = "[";
  for (int row = 0; row < cells.rows(); ++row) {
    out += row > 0 ? ",[" : "[";
    for (int b = 0; b < cells.buckets(); ++b) {
      const int i = cells.At(row, b);
      absl::StrAppend(&out, b > 0 ? "," : "", cells.Absent(i) ? "null" : text(i));
    }
    out += "]";
  }
  return out + "]";
}

std::string JsonOf(const v1::SeriesColumns& c) {
  const Cells cells(c);
  std::string out = absl::StrCat("{\"series\":", JsonString(NameOf(c.site())), ",\"role\":\"",
                                 RoleName(c.role()), "\",\"rank\":[", absl::StrJoin(c.rank(), ","),
                                 "],\"bucket_steps\":", c.bucket_steps(), ",\"attempt\":[",
                                 absl::StrJoin(c.attempt(), ","), "],\"step\":[",
                                 absl::StrJoin(c.step(), ","), "]");
  if (!cells.reduced()) {
    return out + ",\"value\":" + Matrix(cells, [&](int i) { return JsonNumber(c.mean(i)); }) +
           "}\n";
  }
  absl::StrAppend(
      &out, ",\"mean\":", Matrix(cells, [&](int i) { return JsonNumber(c.mean(i)); }),
      ",\"min\":", Matrix(cells, [&](int i) { return JsonNumber(c.min(i)); }),
      ",\"max\":", Matrix(cells, [&](int i) { return JsonNumber(c.max(i)); }),
      ",\"count\":", Matrix(cells, [&](int i) { return absl::StrCat(c.count(i)); }),
      ",\"non_finite\":", Matrix(cells, [&](int i) { return absl::StrCat(cells.NonFinite(i)); }));
  return out + "}\n";
}

std::string TextOf(const v1::SeriesColumns& c) {
  const Cells cells(c);
  std::string out = absl::StrCat(Printable(NameOf(c.site())), " (", RoleName(c.role()), ")\n");
  const bool over_ranks = c.rank().empty();
  for (int b = 0; b < cells.buckets(); ++b) {
    for (int row = 0; row < cells.rows(); ++row) {
      const int i = cells.At(row, b);
      if (cells.Absent(i)) continue;
      const std::string steps =
          c.bucket_steps() == 1
              ? absl::StrCat("step ", c.step(b))
              : absl::StrCat("steps ", c.step(b), "-",
                             c.step(b) + static_cast<int64_t>(c.bucket_steps()) - 1);
      out += "  " + Padded(steps, 20) +
             Padded(over_ranks ? "all ranks" : "rank " + cells.RankText(row), 10);
      if (!cells.reduced()) {
        out += ExactNumber(c.mean(i)) + "\n";
        continue;
      }
      absl::StrAppend(&out, Padded(ShortNumber(c.mean(i)), 12), ShortNumber(c.min(i)), " to ",
                      ShortNumber(c.max(i)), ", ", Plural(c.count(i), "value"));
      if (cells.NonFinite(i) > 0) absl::StrAppend(&out, ", ", cells.NonFinite(i), " not finite");
      out += "\n";
    }
  }
  return out;
}

int ListSeries(Client& client, const SeriesOptions& options, bool caught_up) {
  v1::ListSeriesRequest request;
  request.set_run(options.run);
  const auto response = client.ListSeries(request, options.timeout_seconds);
  if (!response.ok()) return LiveFailed(response.status());
  std::string out;
  if (options.format == "csv") out = "series,role,attempt,ranks,step_first,step_last,samples\n";
  for (const v1::SeriesInfo& s : response->series()) {
    const std::string name = NameOf(s.site());
    if (options.format == "json") {
      out += SeriesInfoJson(s);
    } else if (options.format == "csv") {
      absl::StrAppend(&out, CsvText(name), ",", RoleName(s.role()), ",", s.attempt(), ",",
                      s.ranks(), ",", s.step_first(), ",", s.step_last(), ",", s.samples(), "\n");
    } else {
      out += Padded(Printable(name), 40) + Padded(RoleName(s.role()), 8) +
             Padded(Plural(s.ranks(), "rank"), 12) +
             Padded(absl::StrCat("steps ", s.step_first(), "-", s.step_last()), 22) +
             Plural(s.samples(), "value") + "\n";
    }
  }
  if (out.empty() && options.format == "text") out = "no series\n";
  return LiveAnswer(out, caught_up);
}

v1::QuerySeriesRequest RequestOf(const SeriesOptions& options) {
  v1::QuerySeriesRequest request;
  request.set_run(options.run);
  request.set_series(options.series);
  if (!options.role.empty())
    request.set_role(options.role == "rollout" ? v1::ROLE_ROLLOUT : v1::ROLE_TRAINER);
  for (const uint32_t rank : options.ranks) request.add_rank(rank);
  if (options.attempt) request.set_attempt(*options.attempt);
  if (options.first) request.set_step_first(*options.first);
  if (options.last) request.set_step_last(*options.last);
  request.set_last_steps(options.last_steps);
  request.set_max_cells(options.cells == 0 && options.format == "text" ? kTextCells
                                                                       : options.cells);
  request.set_over_ranks(options.over_ranks);
  return request;
}

}  // namespace

std::string SeriesInfoJson(const v1::SeriesInfo& s) {
  return absl::StrCat("{\"series\":", JsonString(NameOf(s.site())), ",\"role\":\"",
                      RoleName(s.role()), "\",\"attempt\":", s.attempt(), ",\"ranks\":", s.ranks(),
                      ",\"step_first\":", s.step_first(), ",\"step_last\":", s.step_last(),
                      ",\"samples\":", s.samples(), "}\n");
}

absl::StatusOr<std::string> SeriesJson(const v1::SeriesColumns& columns) {
  if (!Cells(columns).Whole()) return absl::DataLossError("the server's answer is incomplete");
  return JsonOf(columns);
}

int QuerySeries(const SeriesOptions& options) {
  Client client(options.server);
  const auto caught_up = AwaitCaughtUp(client, options.server, options.timeout_seconds);
  if (!caught_up.ok()) return LiveFailed(caught_up.status());
  if (options.series.empty()) return ListSeries(client, options, *caught_up);
  const auto response = client.QuerySeries(RequestOf(options), options.timeout_seconds);
  if (!response.ok()) return LiveFailed(response.status());
  if (response->series().empty()) {
    return LiveFailed(absl::NotFoundError(absl::StrCat(
        "run ", options.run, " has no values of a series that matches ", options.series,
        " in these steps (plumb query series --run ", options.run, " lists the series)")));
  }
  std::string out;
  if (options.format == "csv")
    out = "series,role,attempt,rank,step,bucket_steps,mean,min,max,count,non_finite\n";
  for (const v1::SeriesColumns& columns : response->series()) {
    if (!Cells(columns).Whole())
      return LiveFailed(absl::DataLossError("the server's answer is incomplete"));
    out += options.format == "csv"    ? CsvOf(columns)
           : options.format == "json" ? JsonOf(columns)
                                      : TextOf(columns);
  }
  if (const int status = LiveAnswer(out, *caught_up); status != 0) return status;
  if (response->omitted() == 0) return 0;
  return LiveFailed(absl::ResourceExhaustedError(absl::StrCat(
      Plural(response->omitted(), "series", "series"),
      " more match, but do not fit: use more --cells, fewer --ranks, or --over-ranks")));
}

}  // namespace plumbline::audit
