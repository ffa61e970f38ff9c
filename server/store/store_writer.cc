#include "server/store/store_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

constexpr uint64_t kPageOverhead = 64;  // of a row in addition to its tile

}  // namespace

absl::StatusOr<std::unique_ptr<StoreWriter>> StoreWriter::Create(Database* database) {
  std::unique_ptr<StoreWriter> writer(new StoreWriter(database));
  const std::pair<Statement*, const char*> statements[] = {
      {&writer->insert_tile_,
       "INSERT OR REPLACE INTO tiles(span, series, first_step, rank_block, last_step, samples,"
       " sealed_s, short, data) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)"},
      {&writer->drop_short_, "DELETE FROM tiles WHERE span=? AND short"},
      {&writer->extent_,
       "INSERT INTO extents VALUES(?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
       " ranks=ranks|excluded.ranks, first_step=min(first_step, excluded.first_step),"
       " last_step=max(last_step, excluded.last_step), samples=samples+excluded.samples"},
      {&writer->span_,
       "INSERT OR REPLACE INTO spans(id, run, attempt, role, generation, first_step, last_step,"
       " samples, sealed_entry, sealed_step) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
      {&writer->run_, "INSERT OR REPLACE INTO runs(id, name) VALUES(?, ?)"},
      {&writer->series_,
       "INSERT OR REPLACE INTO series(id, run, role, layer, op) VALUES(?, ?, ?, ?, ?)"},
      {&writer->position_, "INSERT OR REPLACE INTO meta(key, value) VALUES('position', ?)"},
      {&writer->gap_,
       "INSERT INTO gaps(run, attempt, reason, step_first, step_last, items)"
       " VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
       " step_last=max(step_last, excluded.step_last), items=max(items, excluded.items)"},
      {&writer->revision_,
       "INSERT OR IGNORE INTO incident_history(fingerprint, revision, data) VALUES(?, ?, ?)"}};
  for (const auto& [statement, sql] : statements) {
    auto prepared = database->Prepare(sql);
    if (!prepared.ok()) return prepared.status();
    *statement = std::move(*prepared);
  }
  return writer;
}

absl::Status StoreWriter::Write(const std::vector<StoreJob>& jobs, int64_t unix_s) {
  unix_s_ = unix_s;
  if (auto s = database_->Execute("BEGIN IMMEDIATE"); !s.ok()) return s;
  const uint64_t tiles = tiles_;
  absl::Status status = TakeUpBlocks();
  for (size_t i = 0; status.ok() && i < jobs.size(); ++i) {
    status = std::visit([this](const auto& j) { return Put(j); }, jobs[i]);
  }
  if (status.ok()) status = database_->Execute("COMMIT");
  if (status.ok()) {
    blocks_taken_up_ = true;
    return status;
  }
  tiles_ = tiles;
  database_->Execute("ROLLBACK").IgnoreError();  // SQLite may already have rolled back
  return status;
}

// If a block was open when an earlier process stopped, begins a new block; the short tiles of the
// old block stay. Called with the first write, not when the database is opened, so that a full disk
// does not keep a server from starting.
absl::Status StoreWriter::TakeUpBlocks() {
  if (blocks_taken_up_) return absl::OkStatus();
  return database_->Execute("UPDATE tiles SET short=0 WHERE short");
}

absl::Status StoreWriter::Put(const NameRows& rows) {
  for (const auto& [id, name] : rows.runs) {
    if (auto s = run_.Bind(1, id).BindText(2, name).Run(); !s.ok()) return s;
  }
  for (const SeriesName& s : rows.series) {
    series_.Bind(1, s.id).Bind(2, s.run).Bind(3, static_cast<int>(s.role));
    if (auto status = series_.BindText(4, s.layer).BindText(5, s.op).Run(); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

absl::Status StoreWriter::Put(const BlockJob& job) {
  if (job.whole && job.fresh_from > 0) {
    if (auto s = drop_short_.Bind(1, job.span.id).Run(); !s.ok()) return s;
  }
  const size_t skipped = job.whole ? 0 : job.fresh_from;
  const std::vector<ClosedStepPtr> steps(job.steps.begin() + static_cast<ptrdiff_t>(skipped),
                                         job.steps.end());
  if (steps.empty()) return PutSpan(job.span);
  const auto put = [&](const BuiltTile& built) { return PutTile(job, steps.front()->step, built); };
  if (auto s = BuildTiles(steps, job.fresh_from - skipped, put); !s.ok()) return s;
  return PutSpan(job.span);
}

absl::Status StoreWriter::PutTile(const BlockJob& job, int64_t first_step, const BuiltTile& built) {
  const TileStats stats = encoder_.Encode(*built.tile, &bytes_);
  insert_tile_.Bind(1, job.span.id).Bind(2, built.series).Bind(3, first_step);
  insert_tile_.Bind(4, built.rank_block).Bind(5, built.tile->steps.back());
  insert_tile_.Bind(6, stats.present).Bind(7, unix_s_).Bind(8, job.whole ? 0 : 1);
  if (auto s = insert_tile_.BindBlob(9, bytes_).Run(); !s.ok()) return s;
  ++tiles_;
  if (built.fresh_samples == 0) return absl::OkStatus();
  extent_.Bind(1, job.span.id).Bind(2, built.series).Bind(3, built.rank_block);
  extent_.Bind(4, built.fresh_ranks).Bind(5, built.fresh_first).Bind(6, built.fresh_last);
  return extent_.Bind(7, built.fresh_samples).Run();
}

absl::Status StoreWriter::PutSpan(const SpanRow& s) {
  span_.Bind(1, s.id).Bind(2, s.run).Bind(3, s.attempt).Bind(4, static_cast<int>(s.role));
  span_.Bind(5, s.generation).Bind(6, s.first_step).Bind(7, s.last_step).Bind(8, s.samples);
  return span_.Bind(9, s.sealed_entry).Bind(10, s.sealed_step).Run();
}

absl::Status StoreWriter::Put(const PositionJob& job) { return position_.Bind(1, job.entry).Run(); }

absl::Status StoreWriter::Put(const GapJob& job) {
  const v1::Gap& gap = job.gap;
  gap_.BindText(1, gap.run()).Bind(2, gap.attempt()).BindText(3, gap.reason());
  return gap_.Bind(4, int64_t{gap.step_first()})
      .Bind(5, int64_t{gap.step_last()})
      .Bind(6, uint64_t{gap.items()})
      .Run();
}

absl::Status StoreWriter::Put(const RevisionJob& job) {
  const std::string data = job.revision.SerializeAsString();
  revision_.BindText(1, job.fingerprint).Bind(2, uint64_t{job.revision.revision()});
  return revision_.BindBlob(3, data).Run();
}

absl::Status StoreWriter::Put(const DamagedTileJob& job) {
  auto tile = database_->Prepare(
      "INSERT INTO gaps SELECT runs.name, spans.attempt,"
      " 'damaged-tile: a stored tile of ' || series.op || ' could not be read back',"
      " tiles.first_step, tiles.last_step, tiles.samples FROM tiles"
      " JOIN spans ON spans.id=tiles.span JOIN runs ON runs.id=spans.run"
      " JOIN series ON series.id=tiles.series WHERE tiles.id=? ON CONFLICT DO UPDATE SET"
      " items=items+excluded.items");
  if (!tile.ok()) return tile.status();
  if (auto s = tile->Bind(1, job.tile).Run(); !s.ok()) return s;
  auto drop = database_->Prepare("DELETE FROM tiles WHERE id=?");
  return drop.ok() ? drop->Bind(1, job.tile).Run() : drop.status();
}

absl::Status StoreWriter::Put(const ForgottenRun& job) {
  for (const char* sql : {"DELETE FROM tiles WHERE span IN (SELECT id FROM spans WHERE run=?)",
                          "DELETE FROM extents WHERE span IN (SELECT id FROM spans WHERE run=?)",
                          "DELETE FROM spans WHERE run=?", "DELETE FROM series WHERE run=?",
                          "DELETE FROM runs WHERE id=?"}) {
    auto drop = database_->Prepare(sql);
    if (!drop.ok()) return drop.status();
    if (auto s = drop->Bind(1, job.run).Run(); !s.ok()) return s;
  }
  auto gaps = database_->Prepare("DELETE FROM gaps WHERE run=?");
  return gaps.ok() ? gaps->BindText(1, job.name).Run() : gaps.status();
}

absl::Status StoreWriter::Put(const RebuildJob& job) {
  auto put = database_->Prepare(
      job.range.empty() ? "DELETE FROM meta WHERE key='rebuild'"
                        : "INSERT OR REPLACE INTO meta(key, value) VALUES('rebuild', ?)");
  if (!put.ok()) return put.status();
  if (!job.range.empty()) put->BindBlob(1, job.range);
  return put->Run();
}

absl::StatusOr<uint64_t> StoreWriter::Bytes() const {
  const auto pages = database_->Number("PRAGMA page_count");
  if (!pages.ok()) return pages.status();
  const auto free = database_->Number("PRAGMA freelist_count");
  if (!free.ok()) return free.status();
  const auto size = database_->Number("PRAGMA page_size");
  if (!size.ok()) return size.status();
  return static_cast<uint64_t>((*pages - *free) * *size);
}

// Returns the newest tile that must be removed; 0 if none.
absl::StatusOr<int64_t> StoreWriter::OldestToGo(const StoreLimits& limits, int64_t unix_s,
                                                uint64_t* count) {
  uint64_t excess = 0;
  if (limits.max_bytes > 0) {
    const auto bytes = Bytes();
    if (!bytes.ok()) return bytes.status();
    // Shrinks to a tenth below the limit, so that this does not happen after each block.
    if (*bytes > limits.max_bytes) excess = *bytes - limits.max_bytes / 10 * 9;
  }
  auto oldest = database_->Prepare("SELECT id, sealed_s, length(data) FROM tiles ORDER BY id");
  if (!oldest.ok()) return oldest.status();
  int64_t last = 0;
  uint64_t bytes = 0;
  for (;;) {
    const auto row = oldest->Next();
    if (!row.ok()) return row.status();
    if (!*row) return last;
    const bool old = limits.max_age_s > 0 && oldest->Int(1) + limits.max_age_s < unix_s;
    if (!old && bytes >= excess) return last;
    last = oldest->Int(0);
    bytes += oldest->Unsigned(2) + kPageOverhead;
    ++*count;
  }
}

absl::Status StoreWriter::Retain(const StoreLimits& limits, int64_t unix_s, uint64_t* dropped) {
  uint64_t count = 0;
  const auto last = OldestToGo(limits, unix_s, &count);
  if (!last.ok() || *last == 0) return last.status();
  if (auto s = database_->Execute("BEGIN IMMEDIATE"); !s.ok()) return s;
  absl::Status status =
      DropTiles(*last, "retention: the store's limits of size or age were reached");
  if (status.ok()) status = database_->Execute("COMMIT");
  if (!status.ok()) {
    database_->Execute("ROLLBACK").IgnoreError();
    return status;
  }
  *dropped += count;
  return absl::OkStatus();
}

// Adds one gap per attempt; later removals extend it.
absl::Status StoreWriter::DropTiles(int64_t last_id, const std::string& reason) {
  auto merge = database_->Prepare(
      "INSERT INTO gaps SELECT runs.name, spans.attempt, ?1, coalesce((SELECT min(g.step_first)"
      " FROM gaps g WHERE g.run=runs.name AND g.attempt=spans.attempt AND g.reason=?1),"
      " min(tiles.first_step)), max(tiles.last_step), sum(tiles.samples) FROM tiles"
      " JOIN spans ON spans.id=tiles.span JOIN runs ON runs.id=spans.run WHERE tiles.id<=?2"
      " GROUP BY runs.name, spans.attempt ON CONFLICT DO UPDATE SET"
      " step_last=max(step_last, excluded.step_last), items=items+excluded.items");
  if (!merge.ok()) return merge.status();
  if (auto s = merge->BindText(1, reason).Bind(2, last_id).Run(); !s.ok()) return s;
  auto drop = database_->Prepare("DELETE FROM tiles WHERE id<=?");
  return drop.ok() ? drop->Bind(1, last_id).Run() : drop.status();
}

}  // namespace plumbline::server
