-- SPDX-License-Identifier: Apache-2.0
-- Views whose first row requires all rows of other tables are evaluated once, under the name NAME_made, when all rows are there, and stored
-- (90_after_load.sql). The columns are explained at NAME_made.

CREATE VIEW training_logs AS SELECT * FROM training_log;
CREATE VIEW collectives AS SELECT * FROM collective;
CREATE VIEW stragglers AS SELECT * FROM straggler ORDER BY others_waited DESC, imposed_seconds DESC, rank;
CREATE VIEW hangs AS SELECT * FROM hang;
