// What is printed keeps its form.
#include "plan/render.h"

#include <gtest/gtest.h>

#include "core/json.h"
#include "plan/steps.h"

namespace perdure::plan {
namespace {

TEST(PlanJson, HasTheDocumentedForm) {
  Scenario scenario;
  scenario.profile = {
      PersistenceDomain::Dmp, Ddio::On, ReceiveBuffers::Pm, Transport::InfiniBand, {}};
  scenario.shape = compound();
  scenario.method.shape = compound();
  scenario.method.requester = {write({0}), send({1}, {0}), wait_ack()};
  scenario.method.responder = {{flush_item(0), copy_item(1), flush_item(1), ack()}};
  EXPECT_EQ(
      to_json({scenario}),
      R"({"format": 2, "methods": [
{"update":"compound","primary":"write",)"
      R"("server":{"domain":"dmp","ddio":true,"receive_buffers":"pm","transport":"infiniband",)"
      R"("write_order":"unknown","dma_dirties":"no"},)"
      R"("requester":[{"post":"write","items":["a"]},)"
      R"({"post":"send","items":["b"],"flush":["a"],"replay":false},{"wait":"ack"}],)"
      R"("responder":[[{"do":"flush","item":"a"},{"do":"copy","item":"b"},)"
      R"({"do":"flush","item":"b"},{"do":"ack"}]],"round_trips":1,"b_bytes":"any"}
]}
)");
}

TEST(PlanJson, PrintsEveryScenarioOfBothSources) {
  for (const Source source : {Source::Paper, Source::Best}) {
    const auto scenarios = all_scenarios(source, {Transport::InfiniBand, Transport::Iwarp});
    const auto json = nlohmann::json::parse(to_json(scenarios), nullptr, false);
    ASSERT_FALSE(json.is_discarded());
    EXPECT_EQ(json["format"], 2);
    // Best adds domain page, 2 shapes, 2 transports: SEND, or all 3 where writes are noticed.
    EXPECT_EQ(json["methods"].size(), source == Source::Paper ? 144u : 144u + 2u * 2u * 4u);
  }
}

TEST(PlanJson, TheBestMethodsNeedOneRoundTripEach) {
  for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
    for (const Scenario& scenario : all_scenarios(Source::Best, {Transport::InfiniBand}, order)) {
      EXPECT_EQ(round_trips(scenario.method), 1u) << describe(scenario);
      EXPECT_EQ(scenario.method.primary, scenario.primary) << describe(scenario);
      EXPECT_EQ(scenario.profile.write_order, order);
    }
  }
}

TEST(PlanText, ATableHasARowPerResponderAndShape) {
  const std::string table = to_table(all_scenarios(Source::Paper, {Transport::InfiniBand}));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 2 * (12 + 2) + 1 + 2);
  EXPECT_NE(table.find("write-flush-atomic-flush (1)"), std::string::npos);
}

TEST(PlanText, ATableSaysWhereAnOperationHasNoMethod) {
  const std::string table = to_table(all_scenarios(Source::Best, {Transport::InfiniBand}));
  const std::string row =
      table.substr(table.find("page, ddio on, receive buffers dram, infiniband, dma dirties no"));
  EXPECT_NE(row.substr(0, row.find('\n')).find(" none "), std::string::npos) << row;
}

TEST(PlanText, ExplainNamesTheChoiceItsRivalsAndTheCrossover) {
  ServerProfile server;
  server.domain = PersistenceDomain::Dmp;
  const auto text = explain(server, {}, default_costs(Transport::Tcp));
  ASSERT_TRUE(text.ok());
  for (const std::string_view part :
       {"send-copy-flush-ack", "write-send-flush-ack", "right because", "from     76667 bytes",
        "in the words of the rpmem papers: GPRRM\n"}) {
    EXPECT_NE(text->find(part), std::string::npos) << part << "\n" << *text;
  }
  server.transport = Transport::Roce;
  server.domain = PersistenceDomain::Wsp;
  const auto one_sided = explain(server, {}, default_costs(Transport::Roce));
  ASSERT_TRUE(one_sided.ok());
  EXPECT_NE(one_sided->find("rpmem papers: ARRM\n"), std::string::npos) << *one_sided;
}

TEST(PlanDrawing, DiagramsAreWellFormed) {
  for (const Scenario& scenario : all_scenarios(Source::Best, {Transport::Tcp})) {
    const SequenceDiagram drawing = diagram(scenario.method, scenario.profile);
    EXPECT_EQ(drawing.events.back().text, "acknowledged");
    const std::string svg = to_svg(drawing);
    EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
    EXPECT_NE(svg.find("</svg>"), std::string::npos);
    EXPECT_NE(to_text(drawing).find("requester"), std::string::npos);
  }
}

TEST(PlanDrawing, SeveralDiagramsStandBelowEachOtherInOneDocument) {
  const SequenceDiagram one{"one", {"left", "right"}, {{0, 1, "asks", false}}};
  const SequenceDiagram other{"other", {"left", "right"}, {{1, 0, "answers", false}}};
  const std::vector<SequenceDiagram> both{one, other};
  EXPECT_EQ(to_text("a < b\nmore\n", both),
            "a < b\nmore\n\n" + to_text(one) + "\n" + to_text(other));
  const std::string svg = to_svg("a < b\nmore\n", both);
  EXPECT_EQ(svg.rfind("<svg "), 0u) << "one document";
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  // Expect: the heading's lines at 24 and 44, each diagram (84 + 34 + 20 high) below what is
  // before.
  EXPECT_NE(svg.find("y=\"24\" font-size=\"15\" fill=\"#111111\">a &lt; b</text>"),
            std::string::npos);
  EXPECT_NE(svg.find("y=\"44\" font-size=\"15\" fill=\"#111111\">more</text>"), std::string::npos);
  EXPECT_NE(svg.find("<g transform=\"translate(0 44)\">\n<text"), std::string::npos) << svg;
  EXPECT_NE(svg.find("<g transform=\"translate(0 182)\">\n<text"), std::string::npos) << svg;
  EXPECT_NE(svg.find("viewBox=\"0 0 380 320\""), std::string::npos) << svg;
}

TEST(PlanDrawing, CurvesHaveEveryCandidateAtEverySizeAndTheChangesOfTheChoice) {
  ServerProfile server;
  server.domain = PersistenceDomain::Dmp;
  const CostModel costs = default_costs(Transport::Tcp);
  const auto curves = cost_curves(server, {}, costs, 1 << 20);
  ASSERT_TRUE(curves.ok());
  const auto found = candidates(server, {}, costs);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(curves->methods.size(), found->size());
  for (const CostCurve& curve : curves->methods) {
    ASSERT_EQ(curve.points.size(), 21u) << curve.method;  // 2^0 to 2^20 bytes
    EXPECT_EQ(curve.points.back().bytes, 1u << 20);
    EXPECT_LE(curve.points.front().cost_ns, curve.points.back().cost_ns) << curve.method;
  }
  ASSERT_EQ(curves->changes.size(), 2u);
  EXPECT_EQ(curves->changes[1].bytes, 76667u);
  EXPECT_EQ(curves->changes[1].method.name, "write-send-flush-ack");
}

TEST(PlanDrawing, TheTextPlotHasABarPerSizeAndALineWhereTheChoiceChanges) {
  ServerProfile server;
  server.domain = PersistenceDomain::Dmp;
  const auto plot = cost_plot_text(server, {}, default_costs(Transport::Tcp), 64 << 20);
  ASSERT_TRUE(plot.ok());
  EXPECT_EQ(std::count(plot->begin(), plot->end(), '\n'), 14 + 2) << *plot;  // 4^0 to 4^13 bytes
  const auto border = plot->find("-- from 76667 bytes: write-send-flush-ack\n");
  EXPECT_LT(plot->find("    64 KiB "), border) << *plot;
  EXPECT_GT(plot->find("   256 KiB "), border) << *plot;
  EXPECT_NE(border, std::string::npos);
}

TEST(PlanText, CostsSayWhereTheyAreFrom) {
  ServerProfile server;
  server.domain = PersistenceDomain::Dmp;
  CostModel costs = default_costs(Transport::Tcp);
  EXPECT_NE(explain(server, {}, costs)->find("costs: usual ones (tcp-one-host), not measured"),
            std::string::npos);
  costs.measured = true;
  EXPECT_NE(explain(server, {}, costs)->find("costs: measured on this"), std::string::npos);
  EXPECT_NE(to_text(costs).find("10160.000 ns"), std::string::npos) << to_text(costs);
}

}  // namespace
}  // namespace perdure::plan
