#include "server/store/catalogue_loader.h"

#include <functional>

namespace plumbline::server {
namespace {

absl::Status ForEachRow(const Database* database, const char* sql,
                        const std::function<void(const Statement&)>& take) {
  auto statement = database->Prepare(sql);
  if (!statement.ok()) return statement.status();
  for (;;) {
    const auto row = statement->Next();
    if (!row.ok()) return row.status();
    if (!*row) return absl::OkStatus();
    take(*statement);
  }
}

uint32_t Number(const Statement& row, int column) { return static_cast<uint32_t>(row.Int(column)); }

}  // namespace

absl::Status LoadCatalogue(const Database* database, Catalogue* catalogue) {
  if (auto s = ForEachRow(database, "SELECT id, name FROM runs",
                          [&](const Statement& row) {
                            catalogue->LoadRun(Number(row, 0), std::string(row.Bytes(1)));
                          });
      !s.ok()) {
    return s;
  }
  if (auto s = ForEachRow(database, "SELECT id, run, role, layer, op FROM series ORDER BY id",
                          [&](const Statement& row) {
                            catalogue->LoadSeries(
                                {Number(row, 0), Number(row, 1), static_cast<v1::Role>(row.Int(2)),
                                 std::string(row.Bytes(3)), std::string(row.Bytes(4))});
                          });
      !s.ok()) {
    return s;
  }
  return ForEachRow(database,
                    "SELECT id, run, attempt, generation, role, first_step, last_step, samples,"
                    " sealed_entry, sealed_step FROM spans",
                    [&](const Statement& row) {
                      Span span;
                      span.id = Number(row, 0);
                      span.run = Number(row, 1);
                      span.attempt = Number(row, 2);
                      span.generation = Number(row, 3);
                      span.role = static_cast<v1::Role>(row.Int(4));
                      span.first_step = row.Int(5);
                      span.last_step = row.Int(6);
                      span.samples = row.Unsigned(7);
                      span.sealed = true;
                      span.sealed_entry = row.Unsigned(8);
                      span.sealed_step = row.Int(9);
                      catalogue->LoadSpan(std::move(span));
                    });
}

}  // namespace plumbline::server
