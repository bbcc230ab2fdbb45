// A register, or a wire.
module broi_stage #(
    parameter int WIDTH = 1,
    parameter bit PRESENT = 1'b0
) (
    // verilator lint_off UNUSED
    input  logic             clock,
    // verilator lint_on UNUSED
    input  logic [WIDTH-1:0] in,
    output logic [WIDTH-1:0] out
);
  if (PRESENT) begin : g_register
    always_ff @(posedge clock) out <= in;
  end else begin : g_wire
    assign out = in;
  end
endmodule
