#include "server/store/tile_reader.h"

#include <utility>

namespace plumbline::server {
namespace {

// Resets the statement at the end of the scope, for its next use.
class Resetting {
 public:
  explicit Resetting(Statement* statement) : statement_(statement) {}
  ~Resetting() { statement_->Reset(); }
  Resetting(const Resetting&) = delete;
  Resetting& operator=(const Resetting&) = delete;

 private:
  Statement* statement_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TileReader>> TileReader::Create(const Database* database) {
  auto reader = std::make_unique<TileReader>();
  const std::pair<Statement*, const char*> statements[] = {
      // A block extends from its first step to the one before the next block.
      {&reader->block_before_,
       "SELECT first_step FROM tiles WHERE span=? AND series=? AND first_step<=?"
       " ORDER BY first_step DESC LIMIT 1"},
      {&reader->tiles_,
       "SELECT id, rank_block, data FROM tiles WHERE span=? AND series=? AND first_step>=?"
       " AND first_step<=? AND rank_block>=? AND rank_block<=? AND last_step>=?"
       " ORDER BY first_step, rank_block"},
      {&reader->extents_,
       "SELECT series, rank_block, ranks, samples, first_step, last_step FROM extents"
       " WHERE span=?"},
      {&reader->series_extents_,
       "SELECT series, rank_block, ranks, samples, first_step, last_step FROM extents"
       " WHERE span=? AND series=?"},
      {&reader->gaps_,
       "SELECT run, attempt, step_first, step_last, items, reason FROM gaps"
       " WHERE ?1='' OR run=?1"},
      {&reader->history_,
       "SELECT data FROM incident_history WHERE fingerprint=? ORDER BY revision"}};
  for (const auto& [statement, sql] : statements) {
    auto prepared = database->Prepare(sql);
    if (!prepared.ok()) return prepared.status();
    *statement = std::move(*prepared);
  }
  return reader;
}

absl::Status TileReader::Read(const Range& range,
                              const std::function<void(uint32_t, const Tile&)>& take,
                              std::vector<int64_t>* damaged) {
  int64_t from = range.first;
  {
    const Resetting resetting(&block_before_);
    const auto row =
        block_before_.Bind(1, range.span).Bind(2, range.series).Bind(3, range.first).Next();
    if (!row.ok()) return row.status();
    if (*row) from = block_before_.Int(0);
  }
  const Resetting resetting(&tiles_);
  tiles_.Bind(1, range.span).Bind(2, range.series).Bind(3, from).Bind(4, range.last);
  tiles_.Bind(5, range.first_block).Bind(6, range.last_block).Bind(7, range.first);
  for (;;) {
    const auto row = tiles_.Next();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    if (decoder_.Decode(tiles_.Bytes(2), &tile_).ok()) {
      take(static_cast<uint32_t>(tiles_.Int(1)), tile_);
    } else {
      damaged->push_back(tiles_.Int(0));
    }
  }
}

absl::StatusOr<std::vector<TileReader::Extent>> TileReader::Extents(uint32_t span) {
  return ReadExtents(&extents_.Bind(1, span));
}

absl::StatusOr<std::vector<TileReader::Extent>> TileReader::Extents(uint32_t span,
                                                                    uint32_t series) {
  return ReadExtents(&series_extents_.Bind(1, span).Bind(2, series));
}

absl::StatusOr<std::vector<TileReader::Extent>> TileReader::ReadExtents(Statement* statement) {
  const Resetting resetting(statement);
  std::vector<Extent> extents;
  for (;;) {
    const auto row = statement->Next();
    if (!row.ok()) return row.status();
    if (!*row) return extents;
    Extent& e = extents.emplace_back();
    e.series = static_cast<uint32_t>(statement->Int(0));
    e.rank_block = static_cast<uint32_t>(statement->Int(1));
    e.ranks = statement->Unsigned(2);
    e.samples = statement->Unsigned(3);
    e.first_step = statement->Int(4);
    e.last_step = statement->Int(5);
  }
}

absl::StatusOr<std::vector<v1::Gap>> TileReader::Gaps(const std::string& run) {
  const Resetting resetting(&gaps_);
  gaps_.BindText(1, run);
  std::vector<v1::Gap> gaps;
  for (;;) {
    const auto row = gaps_.Next();
    if (!row.ok()) return row.status();
    if (!*row) return gaps;
    v1::Gap& gap = gaps.emplace_back();
    gap.set_run(std::string(gaps_.Bytes(0)));
    gap.set_attempt(static_cast<uint32_t>(gaps_.Int(1)));
    gap.set_step_first(gaps_.Int(2));
    gap.set_step_last(gaps_.Int(3));
    gap.set_items(gaps_.Unsigned(4));
    gap.set_reason(std::string(gaps_.Bytes(5)));
  }
}

absl::StatusOr<std::vector<v1::IncidentRevision>> TileReader::History(
    const std::string& fingerprint) {
  const Resetting resetting(&history_);
  history_.BindText(1, fingerprint);
  std::vector<v1::IncidentRevision> revisions;
  for (;;) {
    const auto row = history_.Next();
    if (!row.ok()) return row.status();
    if (!*row) return revisions;
    const std::string_view data = history_.Bytes(0);
    v1::IncidentRevision revision;
    if (revision.ParseFromArray(data.data(), static_cast<int>(data.size())))
      revisions.push_back(std::move(revision));
  }
}

}  // namespace plumbline::server
